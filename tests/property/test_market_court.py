"""Whatever reviewers say, no money is made or lost, a slash takes at most the stake, and two thirds are two thirds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.market_scene import Scene, hash_of, owner_of, rules

from troth.protocol.market import court, draws, messages, prices
from troth.protocol.market.court import CONVICTIONS, VOIDING, Finding, Hearing, Pot, Showing, pot_of
from troth.protocol.market.errors import InvalidCase
from troth.protocol.market.types import (
    CaseKind,
    CasePhase,
    CaseState,
    Opinion,
    Outcome,
    Parameters,
    PotKind,
    Rules,
)
from troth.protocol.types import ZERO_ADDRESS, Address, Hash32

EXACT, TOLERANT = rules(exact=True, tiles=0), rules()
TRUE, *FALSE = (hash_of(f"root {number}") for number in range(4))
NODE, SCHEDULER, CLIENT, OPENER, DECIDER = (owner_of(number) for number in range(1, 6))
VERIFIERS = tuple(owner_of(number) for number in range(20, 23))
REVIEWERS = tuple(owner_of(number) for number in range(40, 55))
L = EXACT.penalty
SPOKEN = [opinion for opinion in Opinion if opinion is not Opinion.NONE]


@st.composite
def seats(draw: st.DrawFn) -> tuple[int, ...]:
    """Fifteen seats over some reviewers."""
    cuts = sorted(draw(st.sets(st.integers(1, 14), max_size=14)))
    return tuple(end - start for start, end in zip((0, *cuts), (*cuts, 15), strict=True))


@st.composite
def hearings(draw: st.DrawFn) -> Hearing:
    kind = draw(st.sampled_from((CaseKind.REJECTION, CaseKind.ACCEPTANCE, CaseKind.DOUBT)))
    held = draw(seats())
    showing = st.builds(
        Showing,
        root=st.sampled_from((TRUE, *FALSE)),
        opinion=st.sampled_from(SPOKEN),
        score=st.integers(0, 8_000_000),
        spread=st.integers(0, 4_000_000),
    )
    reveals = tuple(draw(st.none() | showing) for _ in held)
    node = draw(st.none() | st.builds(Showing, root=st.sampled_from((TRUE, FALSE[0]))))
    return Hearing(kind, held, reveals, node)


def _state(hearing: Hearing, opinion: Opinion, **changes: object) -> CaseState:
    plain = CaseState(
        kind=hearing.kind,
        phase=CasePhase.SEEDED,
        suspends=hearing.kind is CaseKind.REJECTION,
        order=hash_of("order"),
        client=CLIENT,
        scheduler=SCHEDULER,
        node=NODE,
        opener=OPENER,
        fee=130,
        unit=7,
        bond=7 * (8 + 6 * 15) + 500,
        locked=0 if hearing.kind is CaseKind.DOUBT else L,
        verifiers=() if hearing.kind is CaseKind.DOUBT else VERIFIERS,
        opinions=() if hearing.kind is CaseKind.DOUBT else (opinion,) * 3,
        reviewers=REVIEWERS[: len(hearing.seats)],
        seats=hearing.seats,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def _balances(state: CaseState, stake: int) -> dict[Pot, int]:
    """What the pots hold while a case is open; ``stake`` is all that each party has left."""
    pots = {pot_of(PotKind.STAKE, one): stake for one in (*VERIFIERS, *REVIEWERS, NODE, SCHEDULER)}
    pots[PotKind.BOND, court.case_of(state)] = state.bond
    pots[pot_of(PotKind.LOCKED, NODE)] = state.locked
    if state.suspends:
        pots |= {pot_of(PotKind.LOCKED, one): L for one in VERIFIERS}
    return pots


GAS = ((OPENER, 100), (DECIDER, 200))


@settings(max_examples=150)
@given(hearings(), st.integers(0, 10_000))
def test_no_money_is_made_or_lost(hearing: Hearing, stake: int) -> None:
    state = _state(hearing, Opinion.REJECT if hearing.kind is CaseKind.REJECTION else Opinion.ACCEPT)
    finding = court.judge(hearing, EXACT)
    finding = replace(finding, outcome=finding.outcome or Outcome.UNDECIDED)
    before = _balances(state, stake)
    after = court.apply_movements(before, court.settle(state, finding, EXACT, before, GAS))
    assert sum(after.values()) == sum(before.values())
    assert min(after.values()) >= 0
    assert after[PotKind.BOND, court.case_of(state)] == 0
    assert after[pot_of(PotKind.LOCKED, NODE)] == 0
    assert all(after.get(pot_of(PotKind.LOCKED, one), 0) == 0 for one in VERIFIERS)
    if finding.outcome in CONVICTIONS and state.locked:
        assert after[pot_of(PotKind.CREDIT, CLIENT)] == state.fee
    if finding.outcome in VOIDING | {Outcome.UPHELD, Outcome.OPENER_MISSING}:
        assert after[pot_of(PotKind.STAKE, NODE)] == stake + state.locked
        assert pot_of(PotKind.CREDIT, CLIENT) not in after
    for index, reviewer in enumerate(state.reviewers):
        lost = stake - after[pot_of(PotKind.STAKE, reviewer)]
        at_fault = index in finding.wrong | finding.silent
        assert lost == (min(stake, 14 * hearing.seats[index]) if at_fault else 0)
        if finding.paid and index in finding.cluster:
            assert lost == 0
            assert after[pot_of(PotKind.CREDIT, reviewer)] == 42 * hearing.seats[index]


def _naive_cluster(hearing: Hearing) -> frozenset[int]:
    """In an exact class a cluster says one thing of one root; who accepts another root than the node's is in none."""
    sets: dict[object, set[int]] = {}
    for index, one in enumerate(hearing.reveals):
        if one is None or (one.opinion is Opinion.ACCEPT and hearing.node and one.root != hearing.node.root):
            continue
        told = one.opinion in {Opinion.ACCEPT, Opinion.REJECT}
        sets.setdefault((one.opinion, one.root if told else None), set()).add(index)
    proper = [members for members in sets.values() if sum(hearing.seats[index] for index in members) > 7]
    return frozenset(proper[0]) if proper else frozenset()


@settings(max_examples=150)
@given(hearings())
def test_the_outcome_is_what_the_rules_say(hearing: Hearing) -> None:
    finding = court.judge(hearing, EXACT)
    cluster = _naive_cluster(hearing)
    assert finding.cluster == cluster
    said = {one.opinion for index, one in enumerate(hearing.reveals) if one and index in cluster}
    weight = sum(hearing.seats[index] for index in cluster)
    doubt = hearing.kind is CaseKind.DOUBT
    if said == {Opinion.MISSING_PROMPT}:
        assert finding.outcome is Outcome.OPENER_MISSING
    elif hearing.node is None:
        assert finding.outcome is (Outcome.REFUNDED if doubt else Outcome.NODE_MISSING)
    elif not said:
        assert finding.outcome is Outcome.NONE
    elif said == {Opinion.ACCEPT}:
        assert finding.outcome is Outcome.UPHELD
    elif finding.outcome in CONVICTIONS:
        helping = {Opinion.REJECT: Opinion.MISSING_TRACE, Opinion.MISSING_TRACE: Opinion.REJECT}
        others = [helping.get(one) for one in said]
        more = [i for i, one in enumerate(hearing.reveals) if one and i not in cluster and one.opinion in others]
        assert weight + sum(hearing.seats[index] for index in more) >= 10
        assert not doubt
    else:
        assert finding.outcome is Outcome.REFUNDED
    assert not finding.cluster & (finding.wrong | finding.silent)


def _told(opinion: Opinion, count: int, *, root: Hash32 = TRUE, score: int = 0, spread: int = 0) -> tuple[Showing, ...]:
    return (Showing(root, b"", opinion, score, spread),) * count


def _hearing(
    *parts: tuple[Showing, ...], kind: CaseKind = CaseKind.REJECTION, node: Hash32 | None = FALSE[0]
) -> Hearing:
    reveals = tuple(one for part in parts for one in part)
    silent = (None,) * (15 - len(reveals))
    return Hearing(kind, (1,) * 15, (*reveals, *silent), None if node is None else Showing(node))


REJECT, ACCEPT, TRACE = Opinion.REJECT, Opinion.ACCEPT, Opinion.MISSING_TRACE


@pytest.mark.parametrize(
    ("hearing", "used", "outcome", "pooled"),
    [
        (_hearing(_told(REJECT, 10)), EXACT, Outcome.CONVICTED, False),
        (_hearing(_told(REJECT, 9)), EXACT, Outcome.REFUNDED, False),
        (_hearing(_told(REJECT, 9), _told(TRACE, 1)), EXACT, Outcome.CONVICTED, False),
        (_hearing(_told(TRACE, 9), _told(REJECT, 1)), EXACT, Outcome.NODE_MISSING, False),
        (_hearing(_told(REJECT, 7)), EXACT, Outcome.NONE, False),
        (_hearing(_told(REJECT, 15), kind=CaseKind.DOUBT), EXACT, Outcome.REFUNDED, True),
        (_hearing(_told(REJECT, 15), kind=CaseKind.ACCEPTANCE), EXACT, Outcome.CONVICTED, False),
        (_hearing(_told(ACCEPT, 8), node=TRUE), EXACT, Outcome.UPHELD, False),
        (_hearing(_told(ACCEPT, 15)), EXACT, Outcome.NONE, False),
        (_hearing(_told(REJECT, 8), node=None), EXACT, Outcome.NODE_MISSING, False),
        (_hearing(_told(REJECT, 8), node=None, kind=CaseKind.DOUBT), EXACT, Outcome.REFUNDED, False),
        (_hearing(_told(Opinion.MISSING_PROMPT, 8), node=None), EXACT, Outcome.OPENER_MISSING, False),
        (_hearing(_told(Opinion.MISSING_INPUT, 10)), EXACT, Outcome.SCHEDULER_MISSING, False),
        (_hearing(_told(Opinion.MISSING_INPUT, 9)), EXACT, Outcome.REFUNDED, False),
        (_hearing(_told(Opinion.CANNOT_TELL, 15)), EXACT, Outcome.REFUNDED, False),
        (_hearing(_told(REJECT, 10, score=4_000_001, spread=2_000_000)), TOLERANT, Outcome.CONVICTED, False),
        (_hearing(_told(REJECT, 10, score=4_000_000)), TOLERANT, Outcome.REFUNDED, True),
        (_hearing(_told(REJECT, 10, score=5_000_000, spread=2_500_000)), TOLERANT, Outcome.REFUNDED, True),
        (_hearing(_told(REJECT, 10), kind=CaseKind.ACCEPTANCE), TOLERANT, Outcome.REFUNDED, False),
        (_hearing(_told(REJECT, 10, score=4_000_001), kind=CaseKind.DOUBT), TOLERANT, Outcome.REFUNDED, True),
    ],
)
def test_outcomes(hearing: Hearing, used: Rules, outcome: Outcome, pooled: bool) -> None:
    finding = court.judge(hearing, used)
    assert (finding.outcome, finding.pooled) == (outcome, pooled)


def test_a_splinter_of_addresses_weighs_what_its_seats_weigh() -> None:
    """Twenty addresses with a fifth of the seats against four owners: addresses count for nothing."""
    honest, friends = _told(REJECT, 1), _told(ACCEPT, 3)
    reveals = (*honest, *friends)
    hearing = Hearing(CaseKind.REJECTION, (12, 1, 1, 1), reveals, Showing(TRUE))
    assert court.judge(hearing, EXACT).outcome is Outcome.CONVICTED
    with pytest.raises(InvalidCase, match="15 seats"):
        court.judge(replace(hearing, seats=(4, 1, 1, 1)), EXACT)


def test_traces_are_compared_as_the_class_says() -> None:
    scene = Scene()
    trace, near, far = scene.trace(), scene.trace(1e-7, 1), scene.trace(0.5, 2)

    def shows(opened: object, opinion: Opinion) -> Showing:
        root = Hash32(getattr(opened, "root"))  # noqa: B009
        return Showing(root, getattr(opened, "open")((0, 5)).tiles, opinion)  # noqa: B009

    def judged(node: object, opinion: Opinion, *others: object) -> Outcome:
        reveals = tuple(shows(one, opinion) for one in others)
        return court.judge(
            Hearing(CaseKind.ACCEPTANCE, (5, 5, 5), reveals, shows(node, Opinion.NONE)), TOLERANT
        ).outcome

    assert judged(trace, ACCEPT, trace, near, near) is Outcome.UPHELD
    assert judged(trace, ACCEPT, trace, near, far) is Outcome.UPHELD
    assert judged(far, ACCEPT, trace, near, near) is Outcome.NONE
    assert judged(far, REJECT, trace, near, near) is Outcome.REFUNDED
    assert not np.array_equal(trace.tiles, near.tiles)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), min_size=1, max_size=12))
def test_the_median_is_that_of_the_seats(weighted: list[tuple[int, int]]) -> None:
    spread_out = sorted(value for value, weight in weighted for _ in range(weight))
    assert court.weighted_median(weighted) == spread_out[(len(spread_out) - 1) // 2]


def _settled(outcome: Outcome, stake: int = 0, **changes: object) -> dict[Pot, int]:
    hearing = _hearing(_told(REJECT, 10))
    state = _state(hearing, REJECT, **changes)
    finding = replace(court.judge(hearing, EXACT), outcome=outcome)
    before = _balances(state, stake)
    return court.apply_movements(before, court.settle(state, finding, EXACT, before, GAS))


def test_convicting_oneself_returns_nothing() -> None:
    """One party is node, opener and decider, with what stake there is: it never gets back what it lost."""
    for locked in (0, 10, 1_000, 100_000, L):
        bond = 7 * (8 + 6 * 15) + 500
        after = _settled(Outcome.CONVICTED, locked=locked)
        back = sum(after.get(pot_of(PotKind.CREDIT, one), 0) for one in (OPENER, DECIDER, CLIENT))
        assert back <= bond + max(locked, bond) // 10 + 300 + 130
        assert locked < 10_000 or back < bond + locked * 0.2
    # The client comes first, then work: a reward never keeps them waiting.
    poor = _settled(Outcome.CONVICTED, locked=50)
    assert poor[pot_of(PotKind.CREDIT, CLIENT)] == 130
    assert all(poor[pot_of(PotKind.CREDIT, one)] == 42 for one in REVIEWERS[:10])


def test_a_lost_case_costs_its_opener_the_bond_and_its_rejecters_their_locks() -> None:
    after = _settled(Outcome.UPHELD, stake=1_000)
    assert pot_of(PotKind.CREDIT, OPENER) not in after
    assert all(after[pot_of(PotKind.STAKE, one)] == 1_000 - 14 for one in VERIFIERS)
    assert after[court.BURNT] >= 3 * L
    assert after[pot_of(PotKind.STAKE, NODE)] == 1_000 + L
    fallen = _settled(Outcome.REFUNDED, stake=1_000)
    assert fallen[pot_of(PotKind.CREDIT, OPENER)] > 100
    assert all(fallen[pot_of(PotKind.STAKE, one)] == 1_000 + L for one in VERIFIERS)


def test_a_scheduler_that_owes_rows_pays_from_its_stake() -> None:
    after = _settled(Outcome.SCHEDULER_MISSING, stake=2 * L)
    assert after[pot_of(PotKind.STAKE, SCHEDULER)] == L
    assert after[pot_of(PotKind.STAKE, NODE)] == 3 * L


def test_movements_beyond_a_pot_are_refused() -> None:
    state = _state(_hearing(_told(REJECT, 10)), REJECT)
    movements = court.settle(state, court.judge(_hearing(_told(REJECT, 10)), EXACT), EXACT, _balances(state, 10), GAS)
    with pytest.raises(InvalidCase, match="holds 0"):
        court.apply_movements({}, movements)


# ------------------------------------------------------------------------------------------------------- around a case

WINDOWS = Parameters(
    asset=ZERO_ADDRESS,
    lag=50,
    summons_window=20,
    lookahead=132,
    draw_window=8_000,
    commit_window=40,
    reveal_window=30,
    claim_delay=9_000,
    answer_window=100,
    close_delay=9_200,
    unbonding=50_000,
    seasoning=100,
    reference_age=200,
    suspension_pause=7_200,
    scheduler_stake=1,
    gas_price=0,
    weights=ZERO_ADDRESS,
    prover=ZERO_ADDRESS,
)


def test_who_opens_what_and_when() -> None:
    view = Scene().view
    stranger = owner_of(60)
    court.require_opener(CaseKind.REJECTION, stranger, view)
    for opener in (view.tab.payer, view.tab.key):
        court.require_opener(CaseKind.DOUBT, opener, view)
    for kind in (CaseKind.DOUBT, CaseKind.ACCEPTANCE):
        with pytest.raises(InvalidCase, match="Only the client"):
            court.require_opener(kind, stranger, view)
    assert court.last_opening_block(1_000, WINDOWS) == 1_090
    assert court.bond_of(EXACT, 42, gas=500) == prices.unit(EXACT, 42) * 98 + 500
    kinds = (REJECT, ACCEPT, Opinion.CANNOT_TELL, None)
    assert [court.kind_of(said) for said in kinds] == [CaseKind(1), CaseKind(2), CaseKind(3), CaseKind(3)]


def test_every_phase_ends() -> None:
    state = CaseState(phase=CasePhase.OPENED, phase_block=1_000)
    assert court.expires_after(state, WINDOWS, exact=True) == 1_000 + 8_132
    assert court.expires_after(replace(state, phase=CasePhase.DRAWN), WINDOWS, exact=True) == 1_040
    committed = replace(state, phase=CasePhase.COMMITTED)
    assert court.expires_after(committed, WINDOWS, exact=True) == 1_030
    assert court.expires_after(committed, WINDOWS, exact=False) == 1_000 + 8_132
    assert court.expires_after(replace(state, phase=CasePhase.SEEDED), WINDOWS, exact=False) == 1_030
    with pytest.raises(InvalidCase):
        court.expires_after(CaseState(), WINDOWS, exact=True)
    drawn = replace(state, phase=CasePhase.DRAWN)
    assert court.may_end_commitments(drawn, [True, True], 1_001, WINDOWS)
    assert not court.may_end_commitments(drawn, [True, False], 1_029, WINDOWS)
    assert court.may_end_commitments(drawn, [True, False], 1_030, WINDOWS)
    assert not court.may_end_commitments(drawn, [True, True], 1_041, WINDOWS)


def test_reviewers_are_drawn_anew_each_round_and_never_from_the_parties() -> None:
    scene = Scene()
    excluded: tuple[Address, ...] = tuple(owner_of(number) for number in range(8))
    state = CaseState(kind=CaseKind.REJECTION, order=scene.order_id, excluded=excluded)
    first = court.reviewers(scene.order, state, hash_of("randao"), scene.view)
    assert len(first.operators) == 15
    assert not {scene.view.groups[0].owners[one] for one in first.operators} & set(excluded)
    for other in (replace(state, round=1), replace(state, kind=CaseKind.DOUBT)):
        assert court.reviewers(scene.order, other, hash_of("randao"), scene.view).operators != first.operators
    assert court.case_of(state) == messages.case_id(scene.order_id, 0)
    assert court.case_of(replace(state, kind=CaseKind.DOUBT)) == messages.case_id(scene.order_id, 128)
    assert isinstance(first, draws.Drawn)
    assert Finding(Outcome.NONE).cluster == frozenset()
