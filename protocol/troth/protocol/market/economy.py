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
CASE_GAS = 1_200_000
"""Gas of a whole case in a tolerant class, which a seat reserves. Less, and who judges could go unpaid."""
GAIN_TIMES, LOSS_TIMES = 3, 2
"""What is lost is at least 3/2 of what is gained. Less leaves no room for an honest share that was guessed too high."""
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
    convicted = at_least(reviewers, supermajority(reviewers), share)
    return check_rate * found * convicted // (MILLION * ONE)


def detection_of(execution_class: ExecutionClass) -> int:
    """p of a class, at its smallest check rate and its share of honest seats."""
    return detection(
        execution_class.least_check_rate,
        execution_class.honest_share,
        execution_class.verifiers,
        execution_class.reviewers,
    )


def deters(penalty: int, gain: int, probability: int) -> bool:
    """Whether a penalty L outweighs what can be gained with fees of at most g: 2 L p >= 3 g (1 - p)."""
    return LOSS_TIMES * penalty * probability >= GAIN_TIMES * gain * (ONE - probability)


def least_penalty(gain: int, probability: int) -> int:
    """The smallest L that deters; raises WeakEconomy where nothing is ever found."""
    if probability <= 0:
        raise WeakEconomy("Nothing is ever found in such a class", probability, "Raise check rate or honest share.")
    return -(-GAIN_TIMES * gain * (ONE - probability) // (LOSS_TIMES * probability))


def least_seat(penalty: int, gas_price: int) -> int:
    """The least stake of a seat: two penalties, a case's gas at the ceiling price, and the reward."""
    gas = -(-CASE_GAS * gas_price // PER)
    return PENALTIES_COVERED * penalty + gas + -(-penalty // REWARD_SHARE)


def require_sound(execution_class: ExecutionClass, gas_price: int) -> None:
    """Raise WeakEconomy unless cheating loses in this class and a seat's stake covers what can be taken from it."""
    probability = detection_of(execution_class)
    if not deters(execution_class.penalty, execution_class.fee_cap, probability):
        least = least_penalty(execution_class.fee_cap, probability)
        what = f"Cheating would pay: L must be at least {least} at p = {probability / ONE:.4f}"
        raise WeakEconomy(what, execution_class.penalty, "Raise the penalty or the check rate, or lower the fee's cap.")
    seat = least_seat(execution_class.penalty, gas_price)
    if execution_class.seat < seat:
        raise WeakEconomy(f"A seat must have at least {seat} of stake", execution_class.seat, "Raise the seat.")
