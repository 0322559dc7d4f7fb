"""Whatever reviewers say, no money is made or lost, a slash takes at most the stake, and two thirds are two thirds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.market_scene import Scene, hash_of, owner_of, rules

from troth.protocol.market import court, court_money, draws, messages, prices
from troth.protocol.market.court import CaseFinding, Hearing, Showing
from troth.protocol.market.court_money import (
    BURNT,
    CONVICTING,
    CaseGas,
    Circumstances,
    DecisionEffects,
    OutcomePool,
    Pot,
    pot_of,
)
from troth.protocol.market.errors import InvalidCase
from troth.protocol.market.proceedings import CaseKind, CasePhase, CaseState, Fault, Outcome
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import Parameters, PotKind, Rules
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
        opinions=b"" if hearing.kind is CaseKind.DOUBT else bytes((opinion,) * 3),
        reviewers=REVIEWERS[: len(hearing.seats)],
        seats=bytes(hearing.seats),
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


GAS_PRICE = 10**6  # of 10^9 gas: opening a case costs 200


def _around(before: dict[Pot, int], **changes: object) -> Circumstances:
    return replace(Circumstances(before, GAS_PRICE, DECIDER), **changes)  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=150)
@given(hearings(), st.integers(0, 10_000), st.integers(0, 5), st.booleans())
def test_no_money_is_made_or_lost(hearing: Hearing, stake: int, pooled: int, voided: bool) -> None:
    state = _state(hearing, Opinion.REJECT if hearing.kind is CaseKind.REJECTION else Opinion.ACCEPT, round=1)
    finding = court.judge(hearing, EXACT)
    before = _balances(state, stake)
    around = _around(before, pool=OutcomePool(pooled, 1), block=2, voided=voided)
    after = court_money.apply_movements(before, court_money.settle(state, finding, EXACT, around))
    assert sum(after.values()) == sum(before.values())
    assert min(after.values()) >= 0
    assert after[PotKind.BOND, court.case_of(state)] == 0
    assert after[pot_of(PotKind.LOCKED, NODE)] == 0
    assert all(after.get(pot_of(PotKind.LOCKED, one), 0) == 0 for one in VERIFIERS)
    by_pool = finding.pooled and pooled >= EXACT.pool_limit
    refund = after.get(pot_of(PotKind.CREDIT, CLIENT), 0)
    if finding.outcome in CONVICTING:
        owing = stake + (0 if finding.outcome is Outcome.SCHEDULER_MISSING else state.locked)
        assert refund == (0 if voided else min(state.fee, owing))
    else:
        assert refund == 0
        assert by_pool or after[pot_of(PotKind.STAKE, NODE)] == stake + state.locked
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


@pytest.mark.slow
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
    elif finding.outcome in CONVICTING:
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
        (_hearing(_told(REJECT, 10, score=5_000_000, spread=2_500_000)), TOLERANT, Outcome.REFUNDED, False),
        (_hearing(_told(REJECT, 10, score=1, spread=0), kind=CaseKind.ACCEPTANCE), TOLERANT, Outcome.REFUNDED, True),
        (_hearing(_told(REJECT, 10, score=4_000_000), kind=CaseKind.DOUBT), TOLERANT, Outcome.REFUNDED, False),
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


BOND = 7 * (8 + 6 * 15) + 500
ROWS = 41
GAS = CaseGas(EXACT, ROWS, GAS_PRICE)
COMMITTED = GAS.committing(15, posted=0, signed=0)
"""Nobody's commitments are in these states."""


def _deciding(*, paid: int = 10, convicts: bool = False, ends: bool = True) -> int:
    """Of the hearing in which ten of fifteen tell, and one is silent by decree."""
    hearing = _hearing(_told(REJECT, 10))
    finding = replace(court.judge(hearing, EXACT), silent=frozenset({14}), paid=paid > 0)
    return GAS.deciding(15, finding, DecisionEffects(convicts=convicts, restores=ends))


def _settled(outcome: Outcome, stake: int = 0, pool: OutcomePool = OutcomePool(), **changes: object) -> dict[Pot, int]:
    hearing = _hearing(_told(REJECT, 10))
    state = _state(hearing, REJECT, drawer=DECIDER, committer=DECIDER, **changes)
    finding = replace(court.judge(hearing, EXACT), outcome=outcome, silent=frozenset({14}))
    before = _balances(state, stake)
    around = _around(before, pool=pool, block=9)
    return court_money.apply_movements(before, court_money.settle(state, finding, EXACT, around))


def _credit(after: dict[Pot, int], account: Address) -> int:
    return after.get(pot_of(PotKind.CREDIT, account), 0)


def test_convicting_oneself_returns_less_than_it_takes() -> None:
    """One party is client, node, opener and decider, with what stake there is."""
    for locked in (10, 1_000, 100_000, L):
        after = _settled(Outcome.CONVICTED, locked=locked)
        back = sum(_credit(after, one) for one in (OPENER, DECIDER, CLIENT))
        assert back < BOND + locked
        # Beside gas, bond and its own fee it gets at most a tenth of L.
        assert back <= BOND + GAS.whole + 130 + L // 10
    assert _settled(Outcome.CONVICTED)[BURNT] > L * 8 // 10


def test_the_client_comes_first_and_out_of_the_penalty_alone() -> None:
    poor = _settled(Outcome.CONVICTED, locked=50)
    assert _credit(poor, CLIENT) == 50
    assert _credit(_settled(Outcome.CONVICTED, locked=0), CLIENT) == 0
    assert all(_credit(poor, one) == 42 for one in REVIEWERS[:10])
    # Free stake pays what was not locked.
    assert _credit(_settled(Outcome.CONVICTED, stake=90, locked=50), CLIENT) == 130


def test_a_stranger_that_brings_a_rejection_shares_its_reward_with_the_rejecters() -> None:
    after = _settled(Outcome.CONVICTED)
    reward = L // 10
    assert _credit(after, OPENER) == BOND + GAS.opening(CaseKind.REJECTION, suspends=True) + reward - reward // 2
    assert all(_credit(after, one) == reward // 2 // 3 for one in VERIFIERS)
    own = _settled(Outcome.CONVICTED, opener=VERIFIERS[0])
    assert _credit(own, VERIFIERS[0]) == BOND + GAS.opening(CaseKind.REJECTION, suspends=True) + reward
    assert (
        _credit(_settled(Outcome.CONVICTED, opener=CLIENT), CLIENT)
        == 130 + BOND + GAS.opening(CaseKind.REJECTION, suspends=True) + reward
    )


def test_a_lost_case_costs_its_opener_the_bond_and_its_rejecters_their_locks() -> None:
    after = _settled(Outcome.UPHELD, stake=1_000)
    assert _credit(after, OPENER) == 0
    assert all(after[pot_of(PotKind.STAKE, one)] == 1_000 - 14 for one in VERIFIERS)
    assert after[BURNT] >= 3 * L
    assert after[pot_of(PotKind.STAKE, NODE)] == 1_000 + L
    fallen = _settled(Outcome.REFUNDED, stake=1_000)
    paid = 10 * 42 + GAS.drawing(15) + COMMITTED + _deciding()
    assert _credit(fallen, OPENER) == max(BOND - paid, 0)
    assert all(fallen[pot_of(PotKind.STAKE, one)] == 1_000 + L for one in VERIFIERS)


def test_gas_is_paid_to_who_spent_it_in_one_movement() -> None:
    after = _settled(Outcome.CONVICTED)
    assert _credit(after, DECIDER) == GAS.drawing(15) + COMMITTED + _deciding(convicts=True)
    tolerant = CaseGas(TOLERANT, ROWS, GAS_PRICE)
    everybody = frozenset(range(15))
    most = court.CaseFinding(Outcome.CONVICTED, cluster=everybody, paid=True, telling=everybody, node=True)
    deciding = tolerant.deciding(15, most, DecisionEffects())
    ending = tolerant.deciding(15, most, DecisionEffects(convicts=True, evicts=True, restores=True)) - deciding
    signed = tolerant.committing(15, posted=0, signed=15)
    steps = tolerant.drawing(15) + signed + tolerant.seeding(15) + deciding
    # Each step is rounded down by itself, the bond once.
    opening = tolerant.opening(CaseKind.REJECTION, suspends=True)
    assert 0 <= tolerant.whole - opening - 2 * steps - ending < 10
    # Where two steps are one call, it is paid less than they are.
    assert tolerant.convening(15) < tolerant.drawing(15) + signed
    concluding = tolerant.deciding(15, most, DecisionEffects(proves=True))
    assert concluding < tolerant.seeding(15) + deciding
    assert court_money.bond_of(EXACT, 41, GAS_PRICE) == prices.unit(EXACT, 42) * 98 + GAS.whole


def test_a_round_without_cluster_leaves_the_bond_for_the_next() -> None:
    first = _settled(Outcome.NONE, stake=1_000)
    case = (PotKind.BOND, court.case_of(CaseState(order=hash_of("order"), kind=CaseKind.REJECTION)))
    assert first[case] == max(BOND - GAS.drawing(15) - COMMITTED - _deciding(ends=False), 0)
    assert first[pot_of(PotKind.LOCKED, NODE)] == L
    assert first[pot_of(PotKind.STAKE, REVIEWERS[14])] == 1_000 - 14
    second = _settled(Outcome.UNDECIDED, stake=1_000, round=1)
    assert second[case] == 0
    assert second[pot_of(PotKind.STAKE, NODE)] == 1_000 + L


def test_more_refunds_than_honest_noise_convict() -> None:
    pool = OutcomePool()
    for number in range(1, EXACT.pool_limit + 2):
        pool = pool.counted(10 + number, EXACT)
        assert pool == OutcomePool(number, 11)
        assert pool.convicts(EXACT) == (number > EXACT.pool_limit)
    assert pool.counted(11 + EXACT.pool_window, EXACT).count == EXACT.pool_limit + 2
    assert pool.counted(12 + EXACT.pool_window, EXACT) == OutcomePool(1, 12 + EXACT.pool_window)
    hearing = _hearing(_told(REJECT, 15), kind=CaseKind.DOUBT)
    state, finding = _state(hearing, REJECT), court.judge(hearing, EXACT)
    assert court_money.convict_of(state, finding, OutcomePool(3, 1), EXACT) is None
    assert court_money.convict_of(state, finding, OutcomePool(4, 1), EXACT) == (NODE, Fault.POOLED)
    before = _balances(state, 2 * L)
    taken = court_money.settle(state, finding, EXACT, _around(before, pool=OutcomePool(3, 1), block=2))
    after = court_money.apply_movements(before, taken)
    assert after[pot_of(PotKind.STAKE, NODE)] == L
    assert _credit(after, CLIENT) == 0


def test_a_scheduler_that_owes_rows_pays_from_its_stake() -> None:
    after = _settled(Outcome.SCHEDULER_MISSING, stake=2 * L)
    assert after[pot_of(PotKind.STAKE, SCHEDULER)] == L
    assert after[pot_of(PotKind.STAKE, NODE)] == 3 * L


def test_a_case_that_nobody_carries_on_costs_its_bond_alone() -> None:
    state = _state(_hearing(_told(REJECT, 10)), REJECT)
    before = _balances(state, 100)
    after = court_money.apply_movements(before, court_money.lapse(state, EXACT, before))
    assert after[BURNT] == BOND
    assert all(after[pot_of(PotKind.STAKE, one)] == 100 + L for one in (NODE, *VERIFIERS))


def test_movements_beyond_a_pot_are_refused() -> None:
    state = _state(_hearing(_told(REJECT, 10)), REJECT)
    finding = court.judge(_hearing(_told(REJECT, 10)), EXACT)
    movements = court_money.settle(state, finding, EXACT, _around(_balances(state, 10)))
    with pytest.raises(InvalidCase, match="holds 0"):
        court_money.apply_movements({}, movements)


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
    assert court.last_opening_block(1_000, WINDOWS) == 1_350
    kinds = (REJECT, ACCEPT, Opinion.CANNOT_TELL, None)
    assert [court.kind_of(said) for said in kinds] == [CaseKind(1), CaseKind(2), CaseKind(2), CaseKind(3)]


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
    drawn = replace(state, phase=CasePhase.DRAWN, seats=b"\x08\x07")
    assert court.may_end_commitments(drawn, [True, True], 1_001, WINDOWS)
    assert not court.may_end_commitments(drawn, [True, False], 1_030, WINDOWS)
    assert court.may_end_commitments(drawn, [True, False], 1_031, WINDOWS)
    assert not court.may_end_commitments(drawn, [False, True], 1_031, WINDOWS)
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
    assert isinstance(first, draws.DrawnSeats)
    assert CaseFinding(Outcome.NONE).cluster == frozenset()
