"""One case in court, by the shipped functions: who moves what when so many verifiers and reviewers are honest.

``troth.protocol.market.court`` decides and moves; this module only seats the parties, says how each side votes, and
adds up what each side has afterwards. Honest parties run the model, so that their traces agree; the coalition shows one
trace of its own, which is also its node's. Reviewers have a seat each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from benchmarks.economy.world import CLASS_ID, COST, GAS, SEGMENT, World, address
from troth.protocol.hashing import keccak256
from troth.protocol.market import court, court_money, prices
from troth.protocol.market.court import CaseFinding, Hearing, Showing
from troth.protocol.market.proceedings import CaseKind, CaseState, Outcome
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import PotKind
from troth.protocol.types import Address, Hash32

TRUE, FALSE = Hash32(keccak256(b"the model's trace")), Hash32(keccak256(b"the coalition's trace"))
ORDER = Hash32(keccak256(b"order"))
ODD_SCORE = 1_500_000
"""Millionths of the first cut, below a second cut of twice the first."""
NODE, CLIENT, OPENER = address("node"), address("client"), address("opener")


class Side(Enum):
    """Whose money an account is."""

    HONEST = "honest"
    COALITION = "coalition"


class Voice(Enum):
    """How the coalition's reviewers vote."""

    SHREWD = "against what is true where they are the majority, else they cannot tell, which costs nothing"
    AGAINST = "against what is true, always"
    ABSTAINING = "they cannot tell, always"
    SILENT = "not at all"


@dataclass(frozen=True, slots=True)
class Play:
    """A case: its kind, who is honest, and how the coalition's reviewers act.

    ``honest_verifiers`` and ``honest_reviewers`` are seats. ``stake`` is what the node had free when the case was
    opened; None: enough. ``odd``: a tolerant class and a prompt on which honest runs differ so much that all reject.
    """

    kind: CaseKind
    node_honest: bool
    opener: Side
    honest_verifiers: int
    honest_reviewers: int
    client: Side = Side.HONEST
    suspends: bool = False
    voice: Voice = Voice.SHREWD
    shown: bool = True
    stake: int | None = None
    odd: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """What a case moved, in wei, gas that its opener paid included, work of reviewers not."""

    outcome: Outcome
    coalition: float
    node: float
    opener: float
    verifiers: float
    reviewers: float
    client: float
    burnt: float


def judge(world: World, play: Play) -> Account:
    """The account of a case; one that finds no cluster in its second round either is undecided."""
    return _judge(world.in_court, play)


@lru_cache(maxsize=65536)
def _judge(world: World, play: Play) -> Account:
    rules = replace(world.rules, exact=False, tiles=1) if play.odd else world.rules
    finding = court.judge(_odd_hearing(world, play) if play.odd else _hearing(world, play), rules)
    if finding.outcome is Outcome.NONE:
        finding = replace(finding, outcome=Outcome.UNDECIDED)
    state = _state(world, play)
    before = _balances(world, play, state)
    # The round is odd: an undecided one is the last. The opener carries its case on, and gets the gas of all steps.
    price = int(world.paid_back(prices.PER))
    movements = court_money.settle(state, finding, rules, court_money.Circumstances(before, price, OPENER))
    after = court_money.apply_movements(before, movements)
    delta = {pot: after.get(pot, 0) - before.get(pot, 0) for pot in before.keys() | after.keys()}
    return _account(world, play, state, finding, delta)


def bond(world: World) -> int:
    """What an opener puts up."""
    return court_money.bond_of(world.rules, world.positions - 1, world.parameters.gas_price)


def verifier(number: int) -> Address:
    """A drawn verifier; honest ones come first."""
    return address(f"verifier {number}")


def reviewer(number: int) -> Address:
    """A drawn reviewer; honest ones come first."""
    return address(f"reviewer {number}")


def _truth(play: Play) -> Opinion:
    return Opinion.ACCEPT if play.node_honest else Opinion.REJECT


def _lie(play: Play) -> Opinion:
    return Opinion.REJECT if play.node_honest else Opinion.ACCEPT


def _hearing(world: World, play: Play) -> Hearing:
    count = world.money.reviewers
    friends = count - play.honest_reviewers
    against = play.voice is Voice.AGAINST or (play.voice is Voice.SHREWD and 2 * friends > count)
    said = Showing(FALSE, opinion=_lie(play) if against else Opinion.CANNOT_TELL)
    reveals = (Showing(TRUE, opinion=_truth(play)),) * play.honest_reviewers
    reveals += (None if play.voice is Voice.SILENT else said,) * friends
    node = Showing(TRUE if play.node_honest else FALSE) if play.shown else None
    return Hearing(play.kind, (1,) * count, reveals, node)


def _odd_hearing(world: World, play: Play) -> Hearing:
    """All reviewers reject an honest node by a score between the cuts."""
    count = world.money.reviewers
    rejecting = Showing(TRUE, opinion=Opinion.REJECT, score=ODD_SCORE, spread=ODD_SCORE // 3)
    return Hearing(play.kind, (1,) * count, (rejecting,) * count, Showing(FALSE))


def _state(world: World, play: Play) -> CaseState:
    checked = play.kind is not CaseKind.DOUBT
    count = world.money.verifiers if checked else 0
    honest = Opinion.REJECT if play.odd else _truth(play)
    opinions = tuple(honest if number < play.honest_verifiers else _lie(play) for number in range(count))
    stake = world.money.seat if play.stake is None else play.stake
    return CaseState(
        kind=play.kind,
        round=1,
        drawer=OPENER,
        committer=OPENER,
        suspends=play.suspends,
        reference_block=world.order.reference_block,
        rows=world.positions - 1,
        order=ORDER,
        execution_class=CLASS_ID,
        ends=Hash32(bytes([SEGMENT.end]) + bytes(31)),
        client=CLIENT,
        scheduler=address("scheduler"),
        node=NODE,
        opener=OPENER,
        fee=world.fee,
        unit=world.unit,
        bond=bond(world),
        locked=min(world.penalty, stake) if checked else 0,
        verifiers=_verifiers(opinions),
        opinions=bytes(opinions),
        reviewers=tuple(reviewer(number) for number in range(world.money.reviewers)),
        seats=bytes((1,) * world.money.reviewers),
    )


def _verifiers(opinions: tuple[int, ...]) -> tuple[Address, ...]:
    """The drawn verifiers; the first that rejects opens the case: a stranger would have half of the reward."""
    first = next((number for number, opinion in enumerate(opinions) if opinion == Opinion.REJECT), None)
    return tuple(OPENER if number == first else verifier(number) for number in range(len(opinions)))


def _balances(world: World, play: Play, state: CaseState) -> dict[court_money.Pot, int]:
    stake = world.money.seat if play.stake is None else play.stake
    pots = {
        court_money.pot_of(PotKind.STAKE, NODE): stake - state.locked,
        court_money.pot_of(PotKind.LOCKED, NODE): state.locked,
        (PotKind.BOND, court.case_of(state)): state.bond,
    }
    for account, opinion in zip(state.verifiers, state.opinions, strict=True):
        locks = play.suspends and opinion == Opinion.REJECT
        pots[court_money.pot_of(PotKind.LOCKED, account)] = world.penalty if locks else 0
        pots[court_money.pot_of(PotKind.STAKE, account)] = world.money.seat - world.penalty * locks
    for account in state.reviewers:
        pots[court_money.pot_of(PotKind.STAKE, account)] = world.money.seat
    return pots


def _account(
    world: World, play: Play, state: CaseState, finding: CaseFinding, delta: dict[court_money.Pot, int]
) -> Account:
    def moved(*accounts: Address) -> int:
        kinds = (PotKind.CREDIT, PotKind.STAKE, PotKind.LOCKED)
        return sum(delta.get(court_money.pot_of(kind, account), 0) for account in accounts for kind in kinds)

    def others(accounts: Iterable[Address]) -> int:
        return moved(*(account for account in accounts if account != OPENER))

    checking, judging = play.honest_verifiers, play.honest_reviewers
    opener = moved(OPENER) - state.bond - world.wei(GAS.case)
    friends = others((*state.verifiers[checking:], *state.reviewers[judging:]))
    sides = {Side.COALITION: friends, Side.HONEST: 0}
    for account, side in (
        (moved(NODE), Side.HONEST if play.node_honest else Side.COALITION),
        (opener, play.opener),
        (moved(CLIENT), play.client),
    ):
        sides[side] += account
    return Account(
        outcome=finding.outcome,
        coalition=sides[Side.COALITION],
        node=moved(NODE),
        opener=opener,
        verifiers=others(state.verifiers[:checking]),
        reviewers=moved(*state.reviewers[:judging]),
        client=moved(CLIENT),
        burnt=delta.get(court_money.BURNT, 0),
    )


def review_cost(world: World) -> float:
    """What an honest review costs its reviewer in work."""
    return COST * world.reward
