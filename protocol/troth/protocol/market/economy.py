"""What makes cheating lose: the inequality of a class, in the fixed point of the contracts' library ``Economy``.

p is the probability that a false result costs its maker L: it is drawn (q), most of k drawn verifiers are honest, and
two thirds of m' reviewers are. Scheduler and node may be one, so what a cheat can gain is the whole fee g. A class is
refused unless L p >= 1.5 g (1 - p), with the class's cap of the fee and its smallest q, since a cheat picks the
orders that are checked least. Probabilities have 18 decimals and are rounded down.
"""

from __future__ import annotations

from math import comb

from troth.protocol.market.errors import WeakEconomy
from troth.protocol.market.prices import BASIS_POINTS, MILLION, PER
from troth.protocol.market.types import ExecutionClass

ONE = 10**18
"""The number one in fixed point."""
MARGIN_NUMERATOR, MARGIN_DENOMINATOR = 3, 2
"""What is lost is at least 1.5 times what is gained. Less leaves no room for a share that was guessed too high."""
PENALTIES_COVERED = 2
"""A seat covers two penalties: a cheat found twice before its first case ends still pays for both."""


def two_thirds(reviewers: int) -> int:
    """Seats of m' that a conviction needs: ceil(2 m' / 3)."""
    return (2 * reviewers + 2) // 3


def tail(count: int, least: int, share: int) -> int:
    """P[Bin(count, share) >= least] with 18 decimals, rounded down; ``share`` in basis points."""
    honest = _powers(share * (ONE // BASIS_POINTS), count)
    other = _powers((BASIS_POINTS - share) * (ONE // BASIS_POINTS), count)
    terms = (comb(count, hits) * honest[hits] * other[count - hits] // ONE for hits in range(least, count + 1))
    return sum(terms)


def _powers(base: int, count: int) -> list[int]:
    powers = [ONE]
    for _ in range(count):
        powers.append(powers[-1] * base // ONE)
    return powers


def detection(check_rate: int, verifiers: int, reviewers: int, share: int) -> int:
    """p with 18 decimals, rounded down; ``check_rate`` in millionths, ``share`` of honest seats in basis points."""
    checked = check_rate * tail(verifiers, verifiers // 2 + 1, share) // MILLION
    return checked * tail(reviewers, two_thirds(reviewers), share) // ONE


def detection_of(execution_class: ExecutionClass) -> int:
    """p of a class, at its smallest check rate and its share of honest seats."""
    return detection(
        execution_class.least_check_rate,
        execution_class.verifiers,
        execution_class.reviewers,
        execution_class.honest_share,
    )


def holds(penalty: int, gain: int, probability: int) -> bool:
    """Whether L p >= 1.5 g (1 - p)."""
    return MARGIN_DENOMINATOR * penalty * probability >= MARGIN_NUMERATOR * gain * (ONE - probability)


def least_penalty(gain: int, probability: int) -> int:
    """The smallest L for which the inequality holds; raises WeakEconomy where nothing is ever found."""
    if probability <= 0:
        raise WeakEconomy("Nothing is ever found in such a class", probability, "Raise check rate or honest share.")
    return -(-MARGIN_NUMERATOR * gain * (ONE - probability) // (MARGIN_DENOMINATOR * probability))


def least_seat(penalty: int, case_gas: int, gas_price: int) -> int:
    """Stake of one seat: two penalties, a case's gas at the ceiling price, and the opener's reward."""
    return PENALTIES_COVERED * penalty + case_gas * gas_price // PER + penalty // 10


def require_sound(execution_class: ExecutionClass, *, case_gas: int, gas_price: int) -> None:
    """Raise WeakEconomy unless cheating loses in this class and a seat's stake covers what can be taken from it."""
    probability = detection_of(execution_class)
    least = least_penalty(execution_class.fee_cap, probability)
    if execution_class.penalty < least:
        what = f"Cheating would pay: L must be at least {least} at p = {probability / ONE:.4f}"
        raise WeakEconomy(what, execution_class.penalty, "Raise the penalty or the check rate, or lower the fee's cap.")
    seat = least_seat(execution_class.penalty, case_gas, gas_price)
    if execution_class.seat < seat:
        raise WeakEconomy(f"A seat must have at least {seat} of stake", execution_class.seat, "Raise the seat.")
