"""What the contracts' library ``Economy`` asks of a class's money, in Python: it is compared with it."""

from __future__ import annotations

from troth.protocol.market.economy import (
    FEES_COVERED,
    GAIN_TIMES,
    LOSS_TIMES,
    ONE,
    REWARD_SHARE,
    case_gas_of,
    conviction,
    detection_of,
    least_penalty,
    least_seat,
)
from troth.protocol.market.errors import WeakEconomy
from troth.protocol.market.prices import PER
from troth.protocol.market.types import ExecutionClass


def deters(penalty: int, gain: int, probability: int) -> bool:
    """Whether a penalty L outweighs what can be gained with fees of at most g: 2 L p >= 3 g (1 - p)."""
    return LOSS_TIMES * penalty * probability >= GAIN_TIMES * gain * (ONE - probability)


def rewards(penalty: int, convicting: int, gas: int, gas_price: int) -> bool:
    """Whether bringing a rejection pays: a tenth of L where it convicts, against a case's ``gas`` where it does not."""
    return penalty * convicting * PER >= REWARD_SHARE * gas * gas_price * (ONE - convicting)


def least_rewarding(convicting: int, gas: int, gas_price: int) -> int:
    """The smallest L of which a tenth brings a rejection to the court; raises WeakEconomy where no court convicts."""
    if convicting <= 0:
        raise WeakEconomy("No court of this class convicts", convicting, "Raise the honest share.")
    return -(-REWARD_SHARE * gas * gas_price * (ONE - convicting) // (convicting * PER))


def require_sound(execution_class: ExecutionClass, *, gas_price: int, scheduler_stake: int) -> None:
    """Raise WeakEconomy where the contract refuses a class.

    Cheating must lose, who finds a cheat must gain by bringing it to the court, and stakes must cover what is taken.
    """
    probability = detection_of(execution_class)
    convicting = conviction(execution_class.honest_share, execution_class.reviewers)
    penalty, gas = execution_class.penalty, case_gas_of(execution_class)
    least = max(
        least_penalty(execution_class.fee_cap, probability),
        FEES_COVERED * execution_class.fee_cap,
        least_rewarding(convicting, gas, gas_price),
    )
    if penalty < least:
        what = f"Cheating would pay: L must be at least {least} at p = {probability / ONE:.4f}"
        raise WeakEconomy(what, penalty, "Raise the penalty or the check rate, or lower the fee's cap.")
    if penalty > scheduler_stake:
        what = f"A scheduler's least stake, {scheduler_stake}, must cover a conviction"
        raise WeakEconomy(what, penalty, "Lower the fee's cap, or use a deployment with larger stakes.")
    seat = least_seat(penalty, gas, gas_price)
    if execution_class.seat < seat:
        raise WeakEconomy(f"A seat must have at least {seat} of stake", execution_class.seat, "Raise the seat.")
