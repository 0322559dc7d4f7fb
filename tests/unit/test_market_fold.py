"""The market's fold: what events say is what the state holds, and an event that cannot follow is refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.folding import fold
from support.market_logs import META, address, sample
from support.movements import pack_movements

from troth.protocol.errors import InvalidField
from troth.protocol.identifiers import group_id
from troth.protocol.logs import LogMeta
from troth.protocol.market import events as on
from troth.protocol.market.events import Event
from troth.protocol.market.fold import apply
from troth.protocol.market.proceedings import CasePhase, CaseState, Fault, LogCounts, Outcome
from troth.protocol.market.state import NOTHING, AnsweredLeaf, State, account_id
from troth.protocol.market.types import NO_ADDRESS, NO_HASH, Ask, GroupEntry, Movement, PotKind, Role, Tab
from troth.protocol.types import Hash32, Segment

TAB, CLAIM, CASE, GROUP = (Hash32(bytes([number]) * 32) for number in (1, 2, 3, 4))
PAYER, PAYEE, KEY, NODE, OWNER = (address(number) for number in range(5))


def at(block: int) -> LogMeta:
    return replace(META, block=block)


def opened(balance: int = 100) -> on.TabOpened:
    return on.TabOpened(TAB, PAYER, PAYEE, KEY, balance, META)


def moved(amount: int, left: int, came: int, **changes: Any) -> on.Moved:
    plain = on.Moved(NO_HASH, PotKind.STAKE, account_id(NODE), PotKind.BOND, CASE, amount, left, came, META)
    return replace(plain, **changes)


def moved_many(*movements: Movement) -> on.MovedMany:
    return on.MovedMany(CASE, pack_movements(CASE, movements), META)


def collected(amount: int, balance: int, kind: PotKind = PotKind.STAKE, pot: Hash32 | None = None) -> on.Collected:
    return on.Collected(NO_HASH, OWNER, kind, pot or account_id(NODE), amount, balance, META)


def registered() -> on.NodeRegistered:
    return on.NodeRegistered(NODE, OWNER, GROUP, OWNER, 0, 2, "https://a.example", NO_HASH, META)


def refuses(event: Event, state: State) -> None:
    with pytest.raises(InvalidField):
        apply(event, state)


# --------------------------------------------------------------------------------------------------------------- money


def test_money_is_where_movements_put_it_and_nothing_is_made() -> None:
    state = fold([collected(100, 100), moved(30, 70, 30), moved(20, 50, 50)])
    assert (state.pot(PotKind.STAKE, NODE), state.pot(PotKind.BOND, CASE)) == (50, 50)
    assert state.held() == state.came_in - state.went_out == 100
    burnt = replace(moved(50, 0, 50), from_kind=PotKind.BOND, from_id=CASE, to_kind=PotKind.BURNT, to_id=NO_HASH)
    assert apply(burnt, state).pot(PotKind.BURNT, NO_HASH) == 50


def test_movements_of_a_case_in_one_event_are_those_movements() -> None:
    stake, bond = (PotKind.STAKE, account_id(NODE)), (PotKind.BOND, CASE)
    credit, burnt = (PotKind.CREDIT, account_id(PAYEE)), (PotKind.BURNT, NO_HASH)
    state = fold([collected(100, 100), moved_many(Movement(*stake, *bond, 60), Movement(*bond, *credit, 35))])
    assert [state.pot(*one) for one in (stake, bond, credit)] == [40, 25, 35]
    state = apply(moved_many(Movement(*bond, *burnt, 25)), state)
    assert (state.pot(*bond), state.pot(*burnt), state.held()) == (0, 25, 100)
    refuses(moved_many(Movement(*bond, *credit, 1)), state)
    refuses(moved_many(Movement(*burnt, *credit, 1)), state)
    refuses(on.MovedMany(CASE, bytes(34), META), state)


@pytest.mark.parametrize(
    "event",
    [
        moved(30, 71, 30),
        moved(30, 70, 31),
        moved(101, -1, 101),
        moved(10, 0, 10, from_kind=PotKind.BURNT, from_id=NO_HASH),
        collected(5, 104),
        on.Withdrawn(NODE, NODE, 1, META),
        on.TabToppedUp(TAB, 5, 6, META),
        on.TabRedeemed(TAB, 5, META),
    ],
    ids=lambda event: type(event).__name__,
)
def test_movements_that_do_not_add_up_are_refused(event: Event) -> None:
    refuses(event, fold([collected(100, 100)]))


@given(st.lists(st.integers(min_value=1, max_value=40), max_size=12))
def test_no_course_of_movements_changes_the_sum(amounts: list[int]) -> None:
    state = fold([collected(300, 300)])
    for amount in amounts:
        left, came = state.pot(PotKind.STAKE, NODE) - amount, state.pot(PotKind.BOND, CASE) + amount
        if left < 0:
            refuses(moved(amount, left, came), state)
            continue
        state = apply(moved(amount, left, came), state)
    assert state.held() == 300


# ---------------------------------------------------------------------------------------------------------------- tabs


def test_a_tab_keeps_what_was_redeemed_through_its_lives() -> None:
    state = fold([opened(), on.TabRedeemed(TAB, 60, META), on.TabClosing(TAB, 90, META)])
    assert state.tab_state(TAB).closes_at == 90
    assert state.pot(PotKind.CREDIT, PAYEE) == 60
    state = apply(on.TabClosed(TAB, 40, META), state)
    assert (state.tab_state(TAB).known, state.tab_state(TAB).redeemed, state.held()) == (False, 60, 60)
    again = apply(opened(7), state)
    assert (again.tab_state(TAB).balance, again.tab_state(TAB).redeemed) == (7, 60)
    assert again.tabs[TAB].tab == Tab(PAYER, PAYEE, KEY)


def test_what_the_payer_of_a_closed_tab_does_not_take_comes_back_to_its_credit() -> None:
    state = fold([opened(), on.TabClosing(TAB, 90, META), on.TabClosed(TAB, 100, META)])
    assert state.held() == 0
    payer = account_id(PAYER)
    state = apply(on.Collected(TAB, PAYER, PotKind.CREDIT, payer, 100, 100, META), state)
    assert (state.pot(PotKind.CREDIT, payer), state.held()) == (100, 100)
    assert not state.tab_state(TAB).known


def test_tabs_refuse_what_their_past_excludes() -> None:
    state = fold([opened()])
    refuses(opened(), state)
    refuses(on.TabRedeemed(TAB, 101, META), state)
    refuses(on.TabClosed(TAB, 99, META), state)
    refuses(on.TabClosing(Hash32(b"\x09" * 32), 90, META), state)


def claimed() -> on.Claimed:
    event = sample(on.Claimed)
    assert isinstance(event, on.Claimed)
    return replace(event, tab=TAB, claim_id=CLAIM)


def test_a_claim_lives_with_its_objections_and_leaves_its_shortfall() -> None:
    state = fold([opened(), claimed(), on.Objected(TAB, CLAIM, 4, PAYER, 2, 50, META)])
    assert state.tabs[TAB].claim is not None
    assert dict(state.tabs[TAB].claim.objections) == {4: state.tabs[TAB].claim.objections[4]}
    refuses(claimed(), state)
    refuses(on.ObjectionAnswered(TAB, CLAIM, 5, 1, META), state)
    state = apply(on.ObjectionAnswered(TAB, CLAIM, 4, 1, META), state)
    assert state.tabs[TAB].claim is not None
    assert not state.tabs[TAB].claim.objections
    assert dict(state.tabs[TAB].claim.answered) == {4: AnsweredLeaf(1, times=1)}
    state = apply(
        on.ObjectionAnswered(TAB, CLAIM, 4, 1, META), apply(on.Objected(TAB, CLAIM, 4, PAYER, 2, 50, META), state)
    )
    assert state.tabs[TAB].claim is not None
    assert state.tabs[TAB].claim.answered[4].times == 2
    paid = apply(on.TabRedeemed(TAB, 100, META), state)
    settled = apply(on.ClaimSettled(TAB, CLAIM, 130, 100, 30, at(77)), paid)
    assert (settled.tabs[TAB].short, settled.tabs[TAB].shown_block, settled.tabs[TAB].claim) == (30, 77, None)
    forgiven = apply(on.TabForgiven(TAB, 30, 130, META), settled)
    assert (forgiven.tabs[TAB].short, forgiven.tabs[TAB].forgiven) == (0, 30)
    refuses(on.ClaimStruck(TAB, CLAIM, 4, META), settled)
    refuses(on.ClaimStruck(TAB, GROUP, 4, META), state)


# ------------------------------------------------------------------------------------------------------ groups and asks


def entry(operator: int, block: int, seats: int = 2) -> GroupEntry:
    return GroupEntry(address(operator), block, block, seats, 0)


def changed(place: int, one: GroupEntry, size: int, block: int) -> on.EntryChanged:
    return on.EntryChanged(GROUP, place, one, size, at(block))


def test_groups_are_what_they_were_at_any_past_block() -> None:
    state = fold(
        [
            changed(0, entry(10, 5), 1, 5),
            changed(1, entry(11, 6), 2, 6),
            changed(0, entry(11, 9), 1, 9),
            changed(0, entry(11, 12, seats=0), 1, 12),
            changed(0, GroupEntry(), 0, 15),
            changed(0, entry(12, 20), 1, 20),
        ]
    )
    members = {block: [one.operator for one in state.members_at(GROUP, block)] for block in (4, 5, 6, 8, 9, 14, 15, 20)}
    ten, eleven, twelve = address(10), address(11), address(12)
    assert members == {
        4: [],
        5: [ten],
        6: [ten, eleven],
        8: [ten, eleven],
        9: [eleven],
        14: [eleven],
        15: [],
        20: [twelve],
    }
    assert [state.entry_at(GROUP, 0, block).seats for block in (9, 12, 20)] == [2, 0, 2]
    group = state.group(GROUP)
    assert [group.size_at(block) for block in (4, 6, 9, 15, 20)] == [0, 2, 1, 0, 1]
    assert group.entry_at(0, 13) == state.entry_at(GROUP, 0, 13)


def test_only_the_last_change_of_a_block_counts() -> None:
    state = fold([changed(0, entry(10, 5), 1, 5), changed(0, entry(11, 5), 1, 5), changed(0, entry(11, 5, 3), 1, 5)])
    assert state.members_at(GROUP, 5) == (entry(11, 5, 3),)
    assert state.entries[GROUP, 0] == (entry(11, 5, 3),)


def test_entries_of_another_block_are_refused() -> None:
    refuses(changed(0, entry(10, 4), 1, 5), State())
    refuses(changed(0, entry(10, 4), 1, 4), fold([changed(0, entry(10, 5), 1, 5)]))


def test_asks_are_in_force_from_their_block() -> None:
    state = fold([registered(), on.AskChanged(NODE, 0, 2, Ask(1, 2, 3), at(5))])
    state = apply(on.AskChanged(NODE, 0, 2, Ask(4, 5, 6), at(9)), state)
    group = group_id(GROUP, Segment(0, 2))
    assert [state.ask_at(group, NODE, block) for block in (4, 5, 8, 9)] == [
        Ask(),
        Ask(1, 2, 3),
        Ask(1, 2, 3),
        Ask(4, 5, 6),
    ]
    refuses(on.AskChanged(PAYEE, 0, 2, Ask(), META), state)


def test_parties_change_and_leave() -> None:
    state = fold([registered(), on.PayoutChanged(NODE, OWNER, NO_ADDRESS, META), on.SliceChanged(NODE, 0, 1, META)])
    assert (state.payout_of(NODE), state.payout_of(PAYER), state.owner_of(NODE)) == (OWNER, PAYER, OWNER)
    party = apply(on.Deregistered(NODE, 55, META), state).parties[NODE]
    assert (party.exit_block, party.hosted, party.role) == (55, Segment(0, 1), Role.NODE)
    refuses(on.Deregistered(PAYER, 55, META), state)


def test_convictions_are_one_range() -> None:
    first = on.Convicted(NODE, Fault.TWO_ROWS, CASE, 50, 60, 0, META)
    second = on.Convicted(NODE, Fault.POOLED, TAB, 80, 90, 1, META)
    state = fold([first, second])
    assert [state.is_void(NODE, block) for block in (49, 50, 70, 90, 91)] == [False, True, True, True, False]
    assert not state.is_void(PAYER, 60)
    refuses(first, state)


def test_suspensions_are_remembered_after_they_end() -> None:
    state = fold([on.Suspended(NODE, CASE, at(8)), on.Restored(NODE, CASE, at(9))])
    assert (state.suspensions[NODE].block, state.suspensions[NODE].restored) == (8, True)
    refuses(on.Restored(PAYER, CASE, META), state)


# --------------------------------------------------------------------------------------------- cases, summons, the log


def case_opened(**changes: Any) -> on.CaseOpened:
    return on.CaseOpened(CASE, TAB, NODE, CaseState(phase=CasePhase.OPENED, order=TAB, **changes), META)


def test_a_case_keeps_posts_reveals_and_its_newest_state() -> None:
    drawn = CaseState(
        phase=CasePhase.DRAWN, phase_block=META.block, order=TAB, drawer=NODE, reviewers=(NODE,), seats=b"\x03"
    )
    state = fold(
        [
            case_opened(),
            on.ReviewersDrawn(CASE, NODE, 0, NO_HASH, (NODE,), b"\x03", META),
            on.ReviewPosted(CASE, NODE, 0, CLAIM, META),
            on.Revealed(CASE, NODE, 0, GROUP, META),
        ]
    )
    record = state.cases[CASE]
    assert (record.state, record.live, len(record.events)) == (drawn, True, 4)
    assert (record.posts[0, NODE], record.reveals[0, NODE]) == (CLAIM, GROUP)
    refuses(case_opened(), state)
    decided = on.CaseDecided(CASE, TAB, Outcome.REFUNDED, 1, 0, 0, META)
    ended = fold([decided, on.LeafVoided(TAB, 0, CASE, META)], state)
    assert (ended.cases[CASE].outcome, ended.is_voided(TAB, 0), ended.is_voided(TAB, 255)) == (
        Outcome.REFUNDED,
        True,
        True,
    )
    assert not ended.is_voided(TAB, 1)
    refuses(decided, ended)
    again = apply(case_opened(round=2), ended)
    assert (again.cases[CASE].live, len(again.earlier_cases)) == (True, 1)


def test_pools_count_since_the_first_of_their_window() -> None:
    state = fold([on.Pooled(OWNER, GROUP, CASE, 1, at(5)), on.Pooled(OWNER, GROUP, CASE, 2, at(9))])
    assert (state.pools[OWNER, GROUP].count, state.pools[OWNER, GROUP].since) == (2, 5)
    assert apply(on.Pooled(OWNER, GROUP, CASE, 1, at(30)), state).pools[OWNER, GROUP].since == 30


def test_a_summons_is_answered_once() -> None:
    begun = sample(on.Summoned)
    assert isinstance(begun, on.Summoned)
    state = fold([begun, on.NodeSilent(begun.summons_id, NODE, begun.state, 3, META)])
    assert state.summons[begun.summons_id].silent == (NODE,)
    answered = on.SummonsAnswered(begun.summons_id, NODE, NO_HASH, META)
    state = apply(answered, state)
    assert state.summons[begun.summons_id].answered is True
    refuses(answered, state)
    refuses(replace(answered, summons_id=CASE), state)


def test_log_entries_follow_each_other() -> None:
    posted = on.EntryLogged(PAYEE, 1, TAB, LogCounts(*range(7)), CLAIM, CASE, META)
    state = fold([posted])
    assert (state.head_of(PAYEE), state.head_of(PAYER)) == ((1, CASE), (0, NO_HASH))
    refuses(posted, state)
    assert len(apply(replace(posted, number=2), state).logs[PAYEE]) == 2
    assert state.logs.get(PAYER, NOTHING) == ()


@pytest.mark.parametrize("kind", [kind for kinds in on.EVENTS_OF.values() for kind in kinds])
def test_every_kind_of_event_is_folded_or_refused_and_never_crashes(kind: type[Event]) -> None:
    with suppress(InvalidField):
        assert isinstance(apply(sample(kind), State()), State)
