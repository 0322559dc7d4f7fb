"""Whatever is decided a second time, no wei is made or lost, and a right review costs nobody who was honest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from troth.protocol.contract_types import Settled
from troth.protocol.ends import pack_ends
from troth.protocol.payout import settle_task
from troth.protocol.review import bond_of, is_disputable, profits
from troth.protocol.review_payout import FirstRound, close_review, settle_review
from troth.protocol.settlement import (
    BondReturn,
    Credit,
    Movement,
    Outcome,
    Party,
    Pot,
    Release,
    Revealed,
    SegmentDecision,
    SegmentFindings,
    Slash,
    SlashReason,
    TaskDecision,
    decide_segment,
)
from troth.protocol.task import Phase, Progress, Task, Terms
from troth.protocol.types import ZERO_ADDRESS, ZERO_HASH, Address, ExecutionClass, Hash32

TRUE, *FALSE = (bytes([number]) * 32 for number in range(1, 4))
POST = Hash32(b"\x0f" * 32)
CLIENT, SCHEDULER, RESERVE, STRANGER = (Address(name) for name in ("client", "scheduler", "reserve", "stranger"))


@dataclass(frozen=True)
class Scene:
    """Both rounds over one segment. ``honest``: who computed the true trace and said what it shows."""

    findings: SegmentFindings
    first: FirstRound
    reviewers: SegmentFindings
    pot: Pot
    honest: frozenset[str]

    @property
    def decision(self) -> SegmentDecision:
        return decide_segment(self.reviewers)

    @property
    def truth(self) -> Outcome:
        claimed = self.findings.inferencer.revealed
        assert claimed is not None
        return Outcome.ACCEPTED if claimed.root == TRUE else Outcome.REJECTED

    def pay(self, stakes: dict[str, int]) -> tuple[Movement, ...]:
        refund = self.first.outcome is Outcome.ACCEPTED and self.decision.outcome is Outcome.REJECTED
        return settle_review(self.decision, self.first, self.pot, stakes, refund=refund)


@st.composite
def party(draw: st.DrawFn, name: str, claimed: bytes) -> Party:
    kind = draw(st.sampled_from(["absent", "silent", "honest", "honest", "wrong"]))
    if kind in ("absent", "silent"):
        return Party(name, kind == "silent")
    if kind == "honest":
        return Party(name, revealed=Revealed(TRUE, claimed == TRUE))
    return Party(name, revealed=Revealed(draw(st.sampled_from([claimed, *FALSE])), draw(st.booleans())))


def honest_among(parties: tuple[Party, ...], claimed: bytes) -> set[str]:
    return {party.operator for party in parties if party.revealed == Revealed(TRUE, claimed == TRUE)}


def kept(findings: SegmentFindings, decision: SegmentDecision) -> Settled:
    verdicts = {index for index, one in enumerate(findings.verifiers) if one.revealed and one.revealed.verdict}
    masks = [(sum(1 << index for index in found),) for found in (verdicts, decision.cluster, decision.valid)]
    return Settled((int(decision.outcome),), *masks, settled_block=9)


def settled_task(findings: SegmentFindings) -> Task:
    names = tuple(Address(one.operator) for one in (findings.inferencer, *findings.verifiers))
    posts = (POST, *(POST if one.committed else ZERO_HASH for one in findings.verifiers))
    terms = Terms(CLIENT, SCHEDULER, ZERO_HASH, 0, 1, pack_ends((2,)))
    return Task(terms, Progress(Phase.COMMITTED, 5, 1, 1, parties=names, posts=posts))


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    unit = draw(st.integers(1, 10**15))
    claimed = draw(st.sampled_from([TRUE, TRUE, FALSE[0]]))
    inferencer = Party("inferencer", revealed=Revealed(claimed, True))
    verifiers = tuple(draw(party(f"verifier {number}", claimed)) for number in range(draw(st.sampled_from([1, 3, 5]))))
    findings = SegmentFindings(inferencer, verifiers, None)
    decision = decide_segment(findings)
    first = FirstRound(settled_task(findings), kept(findings, decision), 0)
    # The inferencer may fall silent the second time.
    again = draw(st.sampled_from([inferencer, inferencer, inferencer, Party("inferencer")]))
    seats = len(verifiers) + draw(st.sampled_from([2, 4]))
    reviewers = tuple(draw(party(f"reviewer {number}", claimed)) for number in range(seats))
    disputer = draw(st.sampled_from([*first.parties, STRANGER, CLIENT]))
    rules = _rules(unit, seats)
    if decision.outcome is Outcome.INDETERMINATE:
        pot = Pot(0, unit, ZERO_ADDRESS, SCHEDULER, RESERVE)
    else:
        bond = bond_of(rules, party=profits(first.task, first.settled, 0, Address(disputer)))
        pot = Pot(bond, unit, disputer, SCHEDULER, RESERVE)
    honest = honest_among(verifiers, claimed) | honest_among(reviewers, claimed) | {CLIENT, STRANGER}
    if claimed == TRUE and again.revealed:
        honest.add("inferencer")
    return Scene(findings, first, SegmentFindings(again, reviewers, None), pot, frozenset(honest))


def _rules(unit: int, reviewers: int) -> ExecutionClass:
    return ExecutionClass(
        *(ZERO_HASH, "exact", 0, True, 10, 8, 9000, 0, 1, 3, reviewers, unit, 78 * unit, 1, 1, ZERO_HASH)
    )


def everybody(scene: Scene) -> list[str]:
    return [*scene.first.parties, *(one.operator for one in scene.reviewers.verifiers), SCHEDULER, STRANGER]


def balance(movements: tuple[Movement, ...], bond: int) -> int:
    taken = bond + sum(move.amount for move in movements if isinstance(move, Slash))
    return taken - sum(move.amount for move in movements if isinstance(move, Credit | Release | BondReturn))


def gains(movements: tuple[Movement, ...]) -> Counter[str]:
    net: Counter[str] = Counter()
    for move in movements:
        match move:
            case Slash():
                net[move.operator] -= move.amount
            case Credit():
                net[move.account] += move.amount
            case Release():
                net[move.client] += move.amount
            case BondReturn():
                net[move.disputer] += move.amount
    return net


@settings(max_examples=200, deadline=None)
@given(scenes(), st.data())
def test_a_review_conserves_money(scene: Scene, data: st.DataObject) -> None:
    stakes = {name: data.draw(st.integers(0, 80 * scene.pot.unit)) for name in everybody(scene)}
    movements = scene.pay(stakes)
    assert balance(movements, scene.pot.fee) == 0
    assert all(move.amount > 0 for move in movements)
    lost: Counter[str] = Counter()
    for move in movements:
        if isinstance(move, Slash):
            lost[move.operator] += move.amount
    assert all(amount <= stakes.get(operator, 0) for operator, amount in lost.items())
    returned = [move for move in movements if isinstance(move, BondReturn)]
    stands = scene.decision.outcome in (scene.first.outcome, Outcome.INDETERMINATE)
    if scene.decision.outcome is Outcome.INDETERMINATE or not stands:
        assert returned == ([BondReturn(scene.pot.client, scene.pot.fee)] if scene.pot.fee else [])
    else:
        assert not returned


@settings(max_examples=200, deadline=None)
@given(scenes(), st.data())
def test_a_right_review_costs_nobody_who_was_honest(scene: Scene, data: st.DataObject) -> None:
    """Honest first verifiers and reviewers gain; so does an honest inferencer, and who disputed a wrong outcome."""
    # A silent inferencer is rejected whatever it computed, and then nobody else is charged.
    right = scene.decision.outcome is scene.truth or not scene.decision.shown
    # Reviewers who agree on something false are the majority, and whoever is honest dissents from them. An outcome that
    # is right all the same is right by chance: they can say what they like.
    members = {scene.reviewers.verifiers[index].operator for index in scene.decision.cluster}
    by_chance = bool(members) and not members & scene.honest
    if not right or by_chance or not is_disputable(scene.first.settled, 0):
        return
    stakes = {name: data.draw(st.integers(0, 80 * scene.pot.unit)) for name in everybody(scene)}
    movements = scene.pay(stakes)
    net = gains(movements)
    # Not the truth: an inferencer that shows nothing the second time leaves who disputed for it with the bond lost.
    overturned = scene.decision.outcome is not scene.first.outcome
    for name in scene.honest - ({scene.pot.client} if not overturned else set()):
        assert net[name] - (scene.pot.fee if name == scene.pot.client else 0) >= 0
        assert not any(isinstance(move, Slash) and move.operator == name for move in movements)


@settings(max_examples=200, deadline=None)
@given(scenes())
def test_while_stakes_last_an_overturned_outcome_is_as_if_it_had_been_right_at_once(scene: Scene) -> None:
    if scene.decision.outcome is not scene.truth or scene.first.outcome is scene.truth:
        return
    if not scene.first.losers(scene.truth, shown=scene.decision.shown):
        return
    unit = scene.pot.unit
    stakes = dict.fromkeys(everybody(scene), 10_000 * unit)
    fee = unit * 6 * (2 + len(scene.findings.verifiers))
    pot = Pot(fee, unit, "paying client", SCHEDULER, RESERVE)
    outcome = scene.first.outcome
    net = gains(settle_task(TaskDecision(outcome, (decide_segment(scene.findings),)), pot, stakes))
    net.update(gains(scene.pay(stakes)))
    honest = [f"verifier {index - 1}" for index in scene.first.right(scene.truth)]
    honest += ["inferencer"] if scene.truth is Outcome.ACCEPTED else []
    for name in honest:
        assert net[name] == 6 * unit + (scene.pot.fee if name == scene.pot.client else 0)
    if outcome is Outcome.ACCEPTED:
        released = [move for move in scene.pay(stakes) if isinstance(move, Release) and move.client == CLIENT]
        assert sum(move.amount for move in released) == scene.first.spent(unit)


@settings(max_examples=100, deadline=None)
@given(scenes())
def test_who_disputes_wrongly_pays_the_bond_and_the_reviewers(scene: Scene) -> None:
    """8 units, and 6 for each reviewer of the cluster, whoever it is."""
    if scene.decision.outcome is not scene.first.outcome or scene.decision.outcome is Outcome.INDETERMINATE:
        return
    unit, members = scene.pot.unit, len(scene.decision.cluster)
    stakes = dict.fromkeys(everybody(scene), 10_000 * unit)
    movements = scene.pay(stakes)
    paid = sum(m.amount for m in movements if isinstance(m, Slash) and m.reason is SlashReason.DISPUTE_LOST)
    paid += scene.pot.fee - sum(move.amount for move in movements if isinstance(move, Release))
    assert paid == (8 + 6 * members) * unit


@settings(deadline=None)
@given(scenes(), st.data())
def test_an_unfinished_review_conserves_money(scene: Scene, data: st.DataObject) -> None:
    stakes = {SCHEDULER: data.draw(st.integers(0, 20 * scene.pot.unit))}
    committed = data.draw(st.lists(st.sampled_from(everybody(scene)), max_size=9))
    drawable = bool(committed) or data.draw(st.booleans())
    movements = close_review(scene.pot, committed, stakes, verifiers=3, drawable=drawable)
    assert balance(movements, scene.pot.fee) == 0
    net = gains(movements)
    assert net[scene.pot.client] >= scene.pot.fee
    if scene.pot.fee > 8 * scene.pot.unit and scene.pot.client not in committed:
        assert net[scene.pot.client] == scene.pot.fee
    slashed = -min(net[SCHEDULER], 0) if SCHEDULER not in committed else 0
    assert slashed <= min(stakes[SCHEDULER], 28 * scene.pot.unit)
    if not drawable:
        assert net[SCHEDULER] == 0
