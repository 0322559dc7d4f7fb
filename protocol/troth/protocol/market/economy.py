"""What makes cheating lose: the inequality of a class, in the integers of the contracts' library ``Economy``.

p is the probability that a false result costs its maker L: it is drawn (q), most of k drawn verifiers are honest, and
two thirds of m' reviewers are. Scheduler and node may be one, so what a cheat can gain is the whole fee g. A class is
refused unless L p >= 1.5 g (1 - p), with the class's cap of the fee and its smallest q, since a cheat picks the orders
that are checked least. All quotients are rounded down, so that p is never too high.
"""

from __future__ import annotations

from math import comb

from troth.protocol.market.errors import WeakEconomy
from troth.protocol.market.prices import BASIS_POINTS, MILLION, PER
from troth.protocol.market.types import ExecutionClass

ONE = 10**18
"""The number one, in fixed point."""
_CASE, _REVIEWER, _TILE, _LEVEL = 900_000, 30_000, 18_000, 700
MOST_LEVELS = 22
"""No trace that is judged has a deeper tree."""
GAIN_TIMES, LOSS_TIMES = 3, 2
"""What is lost is at least 3/2 of what is gained. Less leaves no room for an honest share that was guessed too high."""
FEES_COVERED = 2
"""A penalty is worth two fees of the cap: the client's refund comes out of it."""
PENALTIES_COVERED = 2
"""A seat covers two penalties: a cheat found twice before its first case ends still pays for both."""
REWARD_SHARE = 10
"""A tenth of what a conviction takes goes to who brought it. Nothing, and a rejection lies where it is."""
_FINE = 10**36


def supermajority(seats: int) -> int:
    """Two thirds of a committee, rounded up: what takes stake."""
    return -(-2 * seats // 3)


def at_least(trials: int, least: int, share: int) -> int:
    """P[Bin(trials, share) >= least] with 18 decimals, rounded down; ``share`` in basis points."""
    honest, others = _powers(share, trials), _powers(BASIS_POINTS - share, trials)
    terms = (honest[hits] * others[trials - hits] // _FINE * comb(trials, hits) for hits in range(least, trials + 1))
    return sum(terms) // (_FINE // ONE)


def _powers(share: int, highest: int) -> list[int]:
    powers = [_FINE]
    for _ in range(highest):
        powers.append(powers[-1] * share // BASIS_POINTS)
    return powers


def detection(check_rate: int, share: int, verifiers: int, reviewers: int) -> int:
    """p with 18 decimals, rounded down; ``check_rate`` in millionths, ``share`` of honest seats in basis points."""
    found = at_least(verifiers, verifiers // 2 + 1, share)
    return check_rate * found * conviction(share, reviewers) // (MILLION * ONE)


def conviction(share: int, reviewers: int) -> int:
    """With 18 decimals, rounded down: two thirds of a committee are honest."""
    return at_least(reviewers, supermajority(reviewers), share)


def detection_of(execution_class: ExecutionClass) -> int:
    """p of a class, at its smallest check rate and its share of honest seats."""
    return detection(
        execution_class.least_check_rate,
        execution_class.honest_share,
        execution_class.verifiers,
        execution_class.reviewers,
    )


def least_penalty(gain: int, probability: int) -> int:
    """The smallest L that deters; raises WeakEconomy where nothing is ever found."""
    if probability <= 0:
        raise WeakEconomy("Nothing is ever found in such a class", probability, "Raise check rate or honest share.")
    return -(-GAIN_TIMES * gain * (ONE - probability) // (LOSS_TIMES * probability))


def case_gas(reviewers: int, tiles: int) -> int:
    """Gas of a whole case that suspends the node, which a seat reserves; less, and who judges could go unpaid.

    Every step in a transaction of its own: what is measured for 5 to 15 reviewers and up to six tiles, a quarter more,
    and tiles of the deepest tree in the clear. The node opens as many tiles (none in an exact class) as a reviewer.
    """
    return _CASE + _REVIEWER * reviewers + (reviewers + 1) * tiles * (_TILE + _LEVEL * MOST_LEVELS)


def case_gas_of(execution_class: ExecutionClass) -> int:
    """Gas of a whole case in a class."""
    return case_gas(execution_class.reviewers, execution_class.tiles)


def least_rewarding(convicting: int, gas: int, gas_price: int) -> int:
    """The smallest L of which a tenth brings a rejection to the court; raises WeakEconomy where no court convicts."""
    if convicting <= 0:
        raise WeakEconomy("No court of this class convicts", convicting, "Raise the honest share.")
    return -(-REWARD_SHARE * gas * gas_price * (ONE - convicting) // (convicting * PER))


def least_seat(penalty: int, gas: int, gas_price: int) -> int:
    """The least stake of a seat: two penalties, a case's ``gas`` at the ceiling price, and the reward."""
    return PENALTIES_COVERED * penalty + -(-gas * gas_price // PER) + -(-penalty // REWARD_SHARE)


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
