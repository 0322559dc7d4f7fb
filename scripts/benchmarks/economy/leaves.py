"""A false answer from its order to its outcome: exactly, as a sum over committees, and played with real draws.

A coalition of scheduler, node and all seats that are not honest gives a false answer. It is paid unless the lottery
hits, most of the drawn verifiers are honest, one of them finds it worth bringing, and the court does not uphold it.
Nobody brings a rejection at a loss: what lies where it is, the scheduler claims.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random

from benchmarks.economy import cases, chances
from benchmarks.economy.cases import Account, Play, Side, Voice
from benchmarks.economy.chances import Population
from benchmarks.economy.world import NODE_SHARE, SEGMENT, World
from troth.protocol.market import checks, draws, lottery, messages
from troth.protocol.market.draws import DrawnSeats
from troth.protocol.market.proceedings import CaseKind, Outcome
from troth.protocol.market.signed import Opinion
from troth.protocol.types import Address, Hash32

UNPAID = frozenset({Outcome.CONVICTED, Outcome.NODE_MISSING, Outcome.REFUNDED, Outcome.UNDECIDED})
"""Outcomes after which the leaf is void."""


@dataclass(frozen=True, slots=True)
class Cheat:
    """Who of the chain of hands gives a false answer, and what its friends do in committees."""

    scheduler: bool = True
    verifying: bool = True
    voice: Voice = Voice.SHREWD
    shown: bool = True
    opener: Side = Side.HONEST
    spared: float = 0.0
    """Of a node's stake the share that sham cases have locked before."""

    def gain(self, world: World) -> float:
        """What a false answer brings that is paid: the whole fee, or the node's share of the work."""
        return float(world.fee) if self.scheduler else NODE_SHARE * world.work

    def play(self, world: World, honest_verifiers: int, honest_reviewers: int) -> Play:
        """The case over it."""
        return Play(
            CaseKind.REJECTION,
            node_honest=False,
            opener=self.opener,
            honest_verifiers=honest_verifiers,
            honest_reviewers=honest_reviewers,
            voice=self.voice,
            shown=self.shown,
            stake=int(world.money.seat * (1 - self.spared)),
        )


BOTH = Cheat()


def rejects(world: World, honest: int, cheat: Cheat) -> bool:
    """Whether a check of a false answer with so many honest seats rejects it."""
    seats = tuple(cases.verifier(number) for number in range(world.money.verifiers))
    said = dict.fromkeys(seats[:honest], Opinion.REJECT)
    if cheat.verifying:
        said |= dict.fromkeys(seats[honest:], Opinion.ACCEPT)
    return checks.majority(DrawnSeats(seats, b""), said) is Opinion.REJECT


@lru_cache(maxsize=4096)
def in_court(world: World, cheat: Cheat, honest_verifiers: int, left: Population) -> dict[str, float]:
    """Expected account of a case: what the coalition has of it, the leaf's fee included, and each honest part."""
    sums: dict[str, float] = {}
    for honest, chance in enumerate(chances.reviewing(world, left)):
        account = cases.judge(world, cheat.play(world, honest_verifiers, honest))
        for name, value in _parts(world, cheat, account).items():
            sums[name] = sums.get(name, 0.0) + chance * value
    return sums


def _parts(world: World, cheat: Cheat, account: Account) -> dict[str, float]:
    void = account.outcome in UNPAID
    return {
        "coalition": account.coalition + (0 if void else cheat.gain(world)),
        "side": account.coalition - account.node,
        "opener": account.opener,
        "convicted": float(account.outcome in {Outcome.CONVICTED, Outcome.NODE_MISSING}),
        "void": float(void),
    }


def is_brought(world: World, cheat: Cheat, honest_verifiers: int, left: Population) -> bool:
    """Whether a rational verifier brings its rejection: it knows what the court is like. Friends bring theirs first."""
    if cheat.opener is Side.COALITION:
        return True
    return in_court(world, cheat, honest_verifiers, left)["opener"] >= 0


def false_answer(world: World, cheat: Cheat = BOTH) -> float:
    """Expected profit of one false answer, in wei."""
    gain = cheat.gain(world)
    checked = 0.0
    for drawn in chances.verifying(world, node_honest=False):
        if rejects(world, drawn.honest, cheat) and is_brought(world, cheat, drawn.honest, drawn.left):
            checked += drawn.chance * in_court(world, cheat, drawn.honest, drawn.left)["coalition"]
        else:
            checked += drawn.chance * gain
    return (1 - world.rate) * gain + world.rate * checked


@dataclass(frozen=True, slots=True)
class Fate:
    """Chances of one false answer: to be convicted, to be paid; and what else its case moves, in wei."""

    convicted: float
    paid: float
    side: float


def fate(world: World, cheat: Cheat = BOTH) -> Fate:
    """What becomes of one false answer."""
    convicted = void = side = 0.0
    for drawn in chances.verifying(world, node_honest=False):
        if rejects(world, drawn.honest, cheat) and is_brought(world, cheat, drawn.honest, drawn.left):
            case = in_court(world, cheat, drawn.honest, drawn.left)
            convicted += world.rate * drawn.chance * case["convicted"]
            void += world.rate * drawn.chance * case["void"]
            side += world.rate * drawn.chance * case["side"]
    return Fate(convicted, 1 - void, side)


def rejected(world: World, cheat: Cheat = BOTH) -> float:
    """Chance that a false answer is drawn and rejected."""
    found = (
        drawn.chance for drawn in chances.verifying(world, node_honest=False) if rejects(world, drawn.honest, cheat)
    )
    return world.rate * sum(found)


def bringing(world: World, cheat: Cheat = BOTH) -> float:
    """What bringing a rejection is worth to an honest verifier at worst, in wei."""
    return min(
        in_court(world, cheat, drawn.honest, drawn.left)["opener"]
        for drawn in chances.verifying(world, node_honest=False)
        if rejects(world, drawn.honest, cheat)
    )


# ------------------------------------------------------------------------------------------------------------ played


@dataclass(slots=True)
class Played:
    """Mean of many plays."""

    values: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Per play."""
        return sum(self.values) / len(self.values)

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        mean = self.mean
        variance = sum((value - mean) ** 2 for value in self.values) / max(len(self.values) - 1, 1)
        return math.sqrt(variance / len(self.values))

    def off(self, exact: float) -> float:
        """How many standard errors the mean is from the exact value."""
        return 0.0 if self.error == 0 else abs(self.mean - exact) / self.error


def play(times: int, one: Callable[[Random], float], seed: int) -> Played:
    """Plays something many times with draws that the seed repeats."""
    source = Random(seed)  # noqa: S311 - a simulation's draws, which a seed must repeat
    return Played([one(source) for _ in range(times)])


def word(source: Random) -> Hash32:
    """Thirty-two random bytes: a secret, a VRF's output, a RANDAO."""
    return Hash32(source.randbytes(32))


def draw_verifiers(world: World, source: Random, excluded: tuple[Address, ...]) -> DrawnSeats:
    """The verifiers of an answer, by the rule of draws."""
    request = draws.verifiers_request(world.order, world.rules, SEGMENT, word(source), excluded)
    return _draw(world, request)


def draw_reviewers(world: World, source: Random, excluded: tuple[Address, ...]) -> DrawnSeats:
    """The reviewers of a case, by the rule of draws."""
    seed = messages.court_seed(cases.ORDER, 0, word(source))
    return _draw(world, draws.reviewers_request(world.order, world.rules, SEGMENT, seed, excluded))


def _draw(world: World, request: draws.DrawRequest) -> DrawnSeats:
    return draws.draw(request, world.group, seat_cap=world.money.seat_cap, seasoning=world.parameters.seasoning)


def honest_seats(world: World, drawn: DrawnSeats) -> int:
    """Drawn seats that honest owners hold."""
    return sum(world.is_honest(operator) for operator in drawn.operators)


def owners_of(world: World, *drawn: DrawnSeats) -> tuple[Address, ...]:
    """Owners of all that were drawn."""
    return tuple(dict.fromkeys(world.group.owners[operator] for one in drawn for operator in one.operators))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How one false answer ended: convicted, paid, and what else its case moved."""

    convicted: bool
    paid: bool
    side: float
    fined: float


def play_outcome(world: World, source: Random, cheat: Cheat = BOTH) -> Outcomes:
    """One false answer through lottery, check and court."""
    unseen = Outcomes(convicted=False, paid=True, side=0.0, fined=0.0)
    if not lottery.hits(word(source), word(source), world.check_rate):
        return unseen
    drawn = draw_verifiers(world, source, (world.cheat,))
    honest = honest_seats(world, drawn)
    owners = owners_of(world, drawn)
    upright = sum(world.is_owner_honest(owner) for owner in owners)
    left = chances.population(world).without(upright, 1 + len(owners) - upright)
    if not rejects(world, honest, cheat) or not is_brought(world, cheat, honest, left):
        return unseen
    reviewers = draw_reviewers(world, source, (world.cheat, *owners))
    account = cases.judge(world, cheat.play(world, honest, honest_seats(world, reviewers)))
    parts = _parts(world, cheat, account)
    return Outcomes(bool(parts["convicted"]), not parts["void"], parts["side"], -account.node)


def play_false_answer(world: World, source: Random, cheat: Cheat = BOTH) -> float:
    """What one false answer brings."""
    outcome = play_outcome(world, source, cheat)
    return outcome.paid * cheat.gain(world) + outcome.side - outcome.fined
