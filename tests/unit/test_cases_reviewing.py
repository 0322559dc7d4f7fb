"""A reviewer against a scripted chain: what it votes, that it never says two things, and how it helps itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases_scene import of_journey
from support.market_logs import address
from support.market_scene import DOMAIN, TAB, hash_of
from support.reviewer_seat import NODE_SALT, REVIEWER, SCENE, Seat, true_states, whole
from support.scripted_court import WINDOWS
from support.waiting import eventually

from troth.cases import calls, context, hearing
from troth.cases import evidence as files
from troth.cases.context import CaseContext
from troth.cases.courtroom import ChainView
from troth.cases.defending import Defender
from troth.cases.errors import AlreadyPledged, EvidenceRefused, NotYours
from troth.cases.evidence import Evidence
from troth.cases.gathering import Gathered
from troth.cases.inbox import CASES, SENDERS, CaseInbox
from troth.cases.record import PledgeRecord, Record
from troth.protocol.market.proceedings import Reveal
from troth.protocol.market.signed import Opinion
from troth.protocol.types import Hash32
from troth.protocol.wire_cases import Fetch, Furnish, Pledge, Show


@pytest.fixture
async def seat(tmp_path: Path) -> Seat:
    made = Seat(tmp_path)
    await made.drawn()
    return made


async def test_a_false_root_is_rejected_and_shown_only_when_all_have_committed(seat: Seat) -> None:
    assert await seat.pledge() is None
    await seat.look()
    assert seat.opinion() is Opinion.REJECT
    pledge = await seat.pledge()
    assert hearing.holds_pledge(seat.court.case, REVIEWER, pledge, DOMAIN)
    assert await seat.show() is None
    await seat.commit()
    shown = await seat.show()
    assert hearing.holds_reveal(seat.court.case, SCENE.scene.view.rules, REVIEWER, shown)
    assert await seat.pledge() is None
    assert seat.engine.runs == 1


async def test_nothing_is_shown_before_the_commitments_are_deep_enough(tmp_path: Path) -> None:
    seat = Seat(tmp_path, depth=2)
    await seat.drawn()
    await seat.look()
    await seat.commit()
    assert await seat.show() is None
    seat.court.mine(2)
    assert await seat.show() is not None


async def test_a_restart_pledges_the_same_and_computes_nothing_anew(seat: Seat) -> None:
    await seat.look()
    first = await seat.pledge()
    seat.record.close()
    seat.start()
    await seat.look()
    assert await seat.pledge() == first
    assert seat.engine.runs == 1


async def test_who_is_drawn_judges_before_anybody_has_said_so(tmp_path: Path) -> None:
    seat = Seat(tmp_path)
    seat.court.foresees = True
    seat.court.mine(WINDOWS.lookahead - 1)
    await seat.look()
    assert await seat.pledge() is None
    seat.court.mine()
    await seat.look()
    pledge = await seat.pledge()
    assert pledge is not None
    # Its own call could only be refused: there are no reviewers on the chain yet.
    seat.court.mine(2)
    await seat.look()
    assert seat.court.sent == []
    await seat.court.send(calls.draw_case(seat.court.contracts, seat.court.case, b"", b""))
    assert await seat.pledge() == pledge
    assert seat.engine.runs == 1


async def test_nothing_is_voted_missing_before_the_window_in_which_it_is_owed(tmp_path: Path) -> None:
    seat = Seat(tmp_path)
    seat.court.foresees = True
    object.__setattr__(seat.gatherer, "found", Gathered(missing=Opinion.MISSING_PROMPT))
    seat.court.mine(WINDOWS.lookahead + WINDOWS.draw_window)
    await seat.look()
    assert await seat.pledge() is None
    object.__setattr__(seat.gatherer, "found", whole())
    await seat.look()
    assert await seat.pledge() is not None


async def test_who_is_not_of_the_class_is_not_asked_for(tmp_path: Path) -> None:
    seat = Seat(tmp_path)
    seat.court.foresees = True
    seat.court.mine(WINDOWS.lookahead)
    own = seat.court.state.parties[REVIEWER]
    elsewhere = replace(own, execution_class=hash_of("another class"))
    seat.court.state = replace(seat.court.state, parties=seat.court.state.parties.set(REVIEWER, elsewhere))
    await seat.look()
    assert seat.gatherer.asked == 0  # type: ignore[attr-defined]


async def test_in_one_hearing_nothing_else_is_ever_said(tmp_path: Path) -> None:
    record, hearing_id = Record(tmp_path), hash_of("hearing")
    one = PledgeRecord(hash_of("case"), hash_of("result"), hash_of("commitment"), Reveal(hash_of("root"), 1))
    assert record.pledge_once(hearing_id, one, true_states()) == one
    other = replace(one, commitment=hash_of("other"), reveal=Reveal(hash_of("other"), 2))
    assert record.pledge_once(hearing_id, other, None) == one
    with pytest.raises(AlreadyPledged):
        record.pledge_once(hearing_id, replace(other, result=hash_of("another")), None)
    states = record.states(hearing_id)
    assert states is not None
    assert np.array_equal(states, true_states())
    record.forget(hearing_id)
    assert (record.states(hearing_id), record.find(hearing_id)) == (None, one)


async def test_a_case_over_another_result_than_was_judged_is_abstained_from(seat: Seat) -> None:
    """A reorganisation may bring another of two results of a node under the same case id."""
    await seat.look()
    record = seat.court.record
    other = replace(record, state=replace(record.state, result=hash_of("another")))
    state = replace(seat.court.state, cases=seat.court.state.cases.set(seat.court.case_id, other))
    assert await seat.reviewer.pledge(ChainView(state, seat.court.block), seat.court.case_id, 0) is None


@pytest.mark.parametrize("missing", [Opinion.MISSING_PROMPT, Opinion.MISSING_INPUT, Opinion.MISSING_TRACE])
async def test_what_is_not_delivered_in_time_is_voted_missing(seat: Seat, missing: Opinion) -> None:
    object.__setattr__(seat.gatherer, "found", Gathered(missing=missing))
    await seat.reviewer.tick(await seat.court.seen())
    await asyncio.sleep(0.02)
    assert seat.record.find(hearing.hearing_of(seat.court.case)) is None
    seat.court.mine(WINDOWS.commit_window // 2)
    await seat.look()
    assert seat.opinion() is missing
    assert seat.engine.runs == 0


async def test_what_comes_late_but_in_time_is_judged(seat: Seat) -> None:
    object.__setattr__(seat.gatherer, "found", Gathered(missing=Opinion.MISSING_PROMPT))
    await seat.reviewer.tick(await seat.court.seen())
    await asyncio.sleep(0.02)
    object.__setattr__(seat.gatherer, "found", whole())
    await seat.look()
    assert seat.opinion() is Opinion.REJECT


async def test_an_engine_that_breaks_accuses_nobody(seat: Seat) -> None:
    seat.engine.broken = True
    await seat.look()
    assert seat.opinion() is Opinion.CANNOT_TELL


async def test_it_posts_and_shows_by_itself_where_nobody_asks(seat: Seat) -> None:
    await seat.look()
    seat.court.mine(WINDOWS.commit_window * 5 // 8 - 3)
    await seat.look()
    assert "post" not in seat.court.sent
    seat.court.mine()
    await seat.look()
    await seat.look()
    assert seat.court.sent.count("post") == 1
    await seat.commit()
    seat.court.mine(WINDOWS.reveal_window * 5 // 8)
    await seat.look()
    await seat.look()
    assert seat.court.sent.count("reveal") == 1


async def test_who_was_asked_posts_only_before_incomplete_sets_count(seat: Seat) -> None:
    await seat.look()
    assert await seat.pledge() is not None
    state = seat.court.case
    seat.court.mine(WINDOWS.commit_window * 6 // 8 - 3)
    await seat.look()
    assert "post" not in seat.court.sent
    seat.court.mine()
    await seat.look()
    assert "post" in seat.court.sent
    assert seat.court.block < state.phase_block + WINDOWS.commit_window * 3 // 4


async def test_a_node_shows_its_trace_when_asked_and_by_itself(seat: Seat) -> None:
    trace = SCENE.scene.trace(0.5, 9)

    class Traces:
        async def root_of(self, order: Hash32, segment: int) -> Any:
            return (Hash32(trace.root), NODE_SALT) if (order, segment) == (SCENE.scene.order_id, 0) else None

        async def trace_of(self, order: Hash32, segment: int) -> Any:
            return (trace, NODE_SALT) if (order, segment) == (SCENE.scene.order_id, 0) else None

    defender = Defender(seat.court.as_account(SCENE.node), SCENE.node, Traces())
    await seat.look()
    seen = ChainView(seat.court.state, seat.court.block)
    assert await defender.show(seen, seat.court.case_id, 0) is None
    await seat.commit()
    seen = ChainView(seat.court.state, seat.court.block)
    assert await defender.show(seen, seat.court.case_id, 0) == SCENE.node_reveal
    assert await defender.show(seen, seat.court.case_id, 1) is None
    await defender.tick(seen)
    assert "revealNode" not in seat.court.sent
    seat.court.mine(WINDOWS.reveal_window * 5 // 8)
    for _ in range(2):
        await defender.tick(ChainView(seat.court.state, seat.court.block))
    assert seat.court.sent.count("revealNode") == 1


async def test_prompts_are_dropped_with_the_case(seat: Seat) -> None:
    seat.gatherer.inbox.keep(seat.court.case_id, "evidence", 0, b"prompt")
    await seat.look()
    await seat.pledge()
    assert list(seat.gatherer.inbox.every(seat.court.case_id, "evidence", 0)) == [b"prompt"]
    assert len(seat.reviewer._preparing) == len(seat.reviewer._pledge_asked) == len(seat.record.hearings()) == 1
    seat.court.mine(WINDOWS.commit_window + 1)
    await seat.court.send(calls.expire(seat.court.contracts, seat.court.case))
    seat.court.mine(WINDOWS.lookahead + WINDOWS.draw_window + 1)
    await seat.court.send(calls.expire(seat.court.contracts, seat.court.case))
    await seat.look()
    assert seat.gatherer.inbox.cases() == ()
    assert seat.record.hearings() == ()
    assert not {*seat.reviewer._preparing, *seat.reviewer._pledge_asked, *seat.reviewer._shown_asked}


async def test_only_reviewers_are_given_prompts(seat: Seat) -> None:
    held = of_journey(SCENE.scene, SCENE.journey)

    class Holdings:
        async def evidence_of(self, order: Hash32) -> Evidence:
            return held

        async def rows_of(self, order: Hash32, segment: int) -> bytes:
            return b"r" * 100

    case_context = CaseContext(lambda: ChainView(seat.court.state, seat.court.block), holdings=Holdings())
    fetch = Fetch(seat.court.case_id, "evidence", 0)
    header, payload = await case_context.handle(REVIEWER, fetch, memoryview(b""))
    assert files.decode(payload) == held
    assert header.size == len(payload)
    _, tail = await case_context.handle(REVIEWER, Fetch(seat.court.case_id, "rows", 0, 90), memoryview(b""))
    assert tail == b"r" * 10
    for stranger in (TAB.payee, TAB.payer, address(9)):
        with pytest.raises(NotYours):
            await case_context.handle(stranger, fetch, memoryview(b""))
    with pytest.raises(NotYours):
        await case_context.handle(REVIEWER, Fetch(hash_of("no case"), "evidence", 0), memoryview(b""))
    assert case_context.authorise(REVIEWER)
    assert case_context.authorise(TAB.payer)
    assert not case_context.authorise(address(9))


async def test_rows_are_read_once_for_all_their_pieces(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a large model are half a gigabyte, and a piece has four megabytes."""
    read = list[int]()

    class Holdings:
        async def evidence_of(self, order: Hash32) -> None:
            return None

        async def rows_of(self, order: Hash32, segment: int) -> bytes | None:
            read.append(segment)
            await asyncio.sleep(0)
            return b"r" * 100 if segment == 0 else None

    case_context = CaseContext(lambda: ChainView(seat.court.state, seat.court.block), holdings=Holdings())

    async def fetch(start: int, segment: int = 0) -> tuple[Any, bytes]:
        return await case_context.handle(REVIEWER, Fetch(seat.court.case_id, "rows", segment, start), memoryview(b""))

    found = await asyncio.gather(*(fetch(start) for start in (0, 30, 60, 90)))
    assert [len(payload) for _, payload in found] == [100, 70, 40, 10]
    assert read == [0]
    assert (await fetch(0, 1))[0].size == 0
    await fetch(0)
    assert read == [0, 1, 0]
    monkeypatch.setattr(context, "KEPT_SECONDS", 0.0)
    await fetch(0)
    assert read == [0, 1, 0]
    await eventually(lambda: case_context._rows._rows is None)  # nobody asks any more
    await fetch(0)
    assert read == [0, 1, 0, 0]


async def test_who_will_be_drawn_is_given_what_it_needs_and_nobody_else_is(tmp_path: Path) -> None:
    seat = Seat(tmp_path)
    seat.court.foresees = True

    class Holdings:
        async def evidence_of(self, order: Hash32) -> Evidence:
            return of_journey(SCENE.scene, SCENE.journey)

        async def rows_of(self, order: Hash32, segment: int) -> bytes:
            return b""

    fetch = Fetch(seat.court.case_id, "evidence", 0)
    case_context = CaseContext(seat.seen, seat.reviewer, holdings=Holdings(), courtroom=seat.court)
    with pytest.raises(NotYours):
        await case_context.handle(REVIEWER, fetch, memoryview(b""))
    seat.court.mine(WINDOWS.lookahead)
    assert (await case_context.handle(REVIEWER, fetch, memoryview(b"")))[1]
    assert (await case_context.handle(TAB.payer, Furnish(fetch.case, "rows", 0, 0, 8), memoryview(b"some")))[
        0
    ].held == 4
    for stranger in (TAB.payee, TAB.payer):
        with pytest.raises(NotYours):
            await case_context.handle(stranger, fetch, memoryview(b""))
    # Who cannot look at the chain itself waits for the draw.
    with pytest.raises(NotYours):
        await CaseContext(seat.seen, holdings=Holdings()).handle(REVIEWER, fetch, memoryview(b""))


async def test_a_case_context_hands_out_pledges_and_showings(seat: Seat) -> None:
    case_context = CaseContext(lambda: ChainView(seat.court.state, seat.court.block), seat.reviewer)
    case = seat.court.case_id
    header, payload = await case_context.handle(TAB.payer, Pledge(case, 0), memoryview(b""))
    assert (header.ready, payload) == (False, b"")
    await seat.look()
    header, payload = await case_context.handle(TAB.payer, Pledge(case, 0), memoryview(b""))
    assert header.ready
    assert (await case_context.handle(TAB.payer, Pledge(case, 1), memoryview(b"")))[0].ready is False
    await seat.commit()
    header, payload = await case_context.handle(TAB.payer, Show(case, 0, "reviewer"), memoryview(b""))
    assert header.ready
    assert (await case_context.handle(TAB.payer, Show(case, 0, "node"), memoryview(b"")))[0].ready is False
    with pytest.raises(NotYours):
        await CaseContext(case_context.seen).handle(TAB.payer, Furnish(case, "evidence", 0, 0, 4), memoryview(b"some"))
    given = await case_context.handle(TAB.payer, Furnish(case, "rows", 0, 0, 8), memoryview(b"some"))
    assert given[0].held == 4
    given = await case_context.handle(TAB.payer, Furnish(case, "rows", 0, 4, 8), memoryview(b"more"))
    assert list(seat.gatherer.inbox.every(case, "rows", 0)) == [b"somemore"]


@pytest.mark.parametrize(("material", "segment"), [("rows", 1), ("rows", 255), ("opening", 1), ("evidence", 1)])
async def test_what_no_review_reads_is_not_kept(seat: Seat, material: Any, segment: int) -> None:
    """A party that delivers rows of 255 segments would fill the disk."""
    case_context = CaseContext(lambda: ChainView(seat.court.state, seat.court.block), seat.reviewer)
    with pytest.raises(EvidenceRefused, match="not read"):
        await case_context.handle(TAB.payer, Furnish(seat.court.case_id, material, segment, 0, 4), memoryview(b"some"))
    assert list(seat.gatherer.inbox.every(seat.court.case_id, material, segment)) == []


async def test_whom_a_case_names_finds_room_beside_a_crowd(seat: Seat) -> None:
    """Accomplices that deliver first would keep the opener's evidence out, and the reviewer would miss its window."""
    case, inbox = seat.court.case_id, seat.gatherer.inbox
    for number in range(SENDERS):
        inbox.put(case, address(10 + number), "opening", 0, 0, 1, b"x")
    case_context = CaseContext(lambda: ChainView(seat.court.state, seat.court.block), seat.reviewer)
    record = seat.court.state.cases[case]
    for named in (record.state.opener, record.state.scheduler):
        given = await case_context.handle(named, Furnish(case, "rows", 0, 0, 4), memoryview(b"rows"))
        assert given[0].held == 4
    with pytest.raises(EvidenceRefused):
        await case_context.handle(address(99), Furnish(case, "rows", 0, 0, 4), memoryview(b"rows"))


@pytest.mark.slow
def test_an_inbox_keeps_senders_apart_and_is_bounded(tmp_path: Path) -> None:
    inbox, case = CaseInbox(tmp_path, address(1), 100), hash_of("case")
    assert inbox.put(case, address(2), "rows", 0, 0, 10, b"12345") == 5
    assert inbox.put(case, address(2), "rows", 0, 7, 10, b"xx") == 5
    assert inbox.put(case, address(3), "rows", 0, 0, 5, b"other") == 5
    assert inbox.put(case, address(2), "rows", 0, 5, 10, b"67890") == 10
    assert inbox.put(case, address(2), "rows", 0, 0, 10, b"again") == 10
    inbox.keep(case, "rows", 0, b"own")
    assert next(inbox.every(case, "rows", 0)) == b"own"
    assert sorted(inbox.every(case, "rows", 0)) == [b"1234567890", b"other", b"own"]
    for size, data in ((101, b"x"), (1, b"xx")):
        with pytest.raises(EvidenceRefused):
            inbox.put(case, address(2), "rows", 0, 0, size, data)
    for number in range(SENDERS - 3):
        inbox.put(case, address(10 + number), "opening", 0, 0, 1, b"x")
    with pytest.raises(EvidenceRefused):
        inbox.put(case, address(99), "opening", 0, 0, 1, b"x")
    for number in range(CASES - 1):
        inbox.put(hash_of(str(number)), address(2), "opening", 0, 0, 1, b"x")
    with pytest.raises(EvidenceRefused):
        inbox.put(hash_of("one too many"), address(2), "opening", 0, 0, 1, b"x")
