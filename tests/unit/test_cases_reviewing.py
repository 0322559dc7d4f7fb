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

from troth.cases import calls, hearing
from troth.cases import evidence as files
from troth.cases.courtroom import ChainView
from troth.cases.defending import Defender
from troth.cases.desk import CaseContext
from troth.cases.errors import AlreadyPledged, EvidenceRefused, NotYours
from troth.cases.evidence import Evidence
from troth.cases.gathering import Gathered
from troth.cases.inbox import CASES, SENDERS, CaseInbox
from troth.cases.record import PledgeRecord, Record
from troth.protocol.market.types import Opinion, Reveal
from troth.protocol.types import Hash32
from troth.protocol.wire_cases import Fetch, Furnish, Pledge, Show


@pytest.fixture
async def bench(tmp_path: Path) -> Seat:
    made = Seat(tmp_path)
    await made.drawn()
    return made


async def test_a_false_root_is_rejected_and_shown_only_when_all_have_committed(bench: Seat) -> None:
    assert await bench.pledge() is None
    await bench.look()
    assert bench.opinion() is Opinion.REJECT
    pledge = await bench.pledge()
    assert hearing.holds_pledge(bench.court.case, REVIEWER, pledge, DOMAIN)
    assert await bench.show() is None
    await bench.commit()
    shown = await bench.show()
    assert hearing.holds_reveal(bench.court.case, SCENE.scene.view.rules, REVIEWER, shown)
    assert await bench.pledge() is None
    assert bench.engine.runs == 1


async def test_nothing_is_shown_before_the_commitments_are_deep_enough(tmp_path: Path) -> None:
    bench = Seat(tmp_path, depth=2)
    await bench.drawn()
    await bench.look()
    await bench.commit()
    assert await bench.show() is None
    bench.court.mine(2)
    assert await bench.show() is not None


async def test_a_restart_pledges_the_same_and_computes_nothing_anew(bench: Seat) -> None:
    await bench.look()
    first = await bench.pledge()
    bench.record.close()
    bench.start()
    await bench.look()
    assert await bench.pledge() == first
    assert bench.engine.runs == 1


async def test_who_is_drawn_judges_before_anybody_has_said_so(tmp_path: Path) -> None:
    bench = Seat(tmp_path)
    bench.court.foresees = True
    bench.court.mine(WINDOWS.lookahead - 1)
    await bench.look()
    assert await bench.pledge() is None
    bench.court.mine()
    await bench.look()
    pledge = await bench.pledge()
    assert pledge is not None
    # Its own call could only be refused: there are no reviewers on the chain yet.
    bench.court.mine(2)
    await bench.look()
    assert bench.court.sent == []
    await bench.court.send(calls.draw_case(bench.court.contracts, bench.court.case, b"", b""))
    assert await bench.pledge() == pledge
    assert bench.engine.runs == 1


async def test_nothing_is_voted_missing_before_the_window_in_which_it_is_owed(tmp_path: Path) -> None:
    bench = Seat(tmp_path)
    bench.court.foresees = True
    object.__setattr__(bench.gatherer, "found", Gathered(missing=Opinion.MISSING_PROMPT))
    bench.court.mine(WINDOWS.lookahead + WINDOWS.draw_window)
    await bench.look()
    assert await bench.pledge() is None
    object.__setattr__(bench.gatherer, "found", whole())
    await bench.look()
    assert await bench.pledge() is not None


async def test_who_is_not_of_the_class_is_not_asked_for(tmp_path: Path) -> None:
    bench = Seat(tmp_path)
    bench.court.foresees = True
    bench.court.mine(WINDOWS.lookahead)
    own = bench.court.state.parties[REVIEWER]
    elsewhere = replace(own, execution_class=hash_of("another class"))
    bench.court.state = replace(bench.court.state, parties=bench.court.state.parties.with_item(REVIEWER, elsewhere))
    await bench.look()
    assert bench.gatherer.asked == 0  # type: ignore[attr-defined]


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


async def test_a_case_over_another_result_than_was_judged_is_abstained_from(bench: Seat) -> None:
    """A reorganisation may bring another of two results of a node under the same case id."""
    await bench.look()
    record = bench.court.record
    other = replace(record, state=replace(record.state, result=hash_of("another")))
    state = replace(bench.court.state, cases=bench.court.state.cases.with_item(bench.court.case_id, other))
    assert await bench.reviewer.pledge(ChainView(state, bench.court.block), bench.court.case_id, 0) is None


@pytest.mark.parametrize("missing", [Opinion.MISSING_PROMPT, Opinion.MISSING_INPUT, Opinion.MISSING_TRACE])
async def test_what_is_not_delivered_in_time_is_voted_missing(bench: Seat, missing: Opinion) -> None:
    object.__setattr__(bench.gatherer, "found", Gathered(missing=missing))
    await bench.reviewer.tick(await bench.court.seen())
    await asyncio.sleep(0.02)
    assert bench.record.find(hearing.hearing_of(bench.court.case)) is None
    bench.court.mine(WINDOWS.commit_window // 2)
    await bench.look()
    assert bench.opinion() is missing
    assert bench.engine.runs == 0


async def test_what_comes_late_but_in_time_is_judged(bench: Seat) -> None:
    object.__setattr__(bench.gatherer, "found", Gathered(missing=Opinion.MISSING_PROMPT))
    await bench.reviewer.tick(await bench.court.seen())
    await asyncio.sleep(0.02)
    object.__setattr__(bench.gatherer, "found", whole())
    await bench.look()
    assert bench.opinion() is Opinion.REJECT


async def test_an_engine_that_breaks_accuses_nobody(bench: Seat) -> None:
    bench.engine.broken = True
    await bench.look()
    assert bench.opinion() is Opinion.CANNOT_TELL


async def test_it_posts_and_shows_by_itself_where_nobody_asks(bench: Seat) -> None:
    await bench.look()
    bench.court.mine(WINDOWS.commit_window * 5 // 8 - 3)
    await bench.look()
    assert "post" not in bench.court.sent
    bench.court.mine()
    await bench.look()
    await bench.look()
    assert bench.court.sent.count("post") == 1
    await bench.commit()
    bench.court.mine(WINDOWS.reveal_window * 5 // 8)
    await bench.look()
    await bench.look()
    assert bench.court.sent.count("reveal") == 1


async def test_who_was_asked_posts_only_before_incomplete_sets_count(bench: Seat) -> None:
    await bench.look()
    assert await bench.pledge() is not None
    state = bench.court.case
    bench.court.mine(WINDOWS.commit_window * 6 // 8 - 3)
    await bench.look()
    assert "post" not in bench.court.sent
    bench.court.mine()
    await bench.look()
    assert "post" in bench.court.sent
    assert bench.court.block < state.phase_block + WINDOWS.commit_window * 3 // 4


async def test_a_node_shows_its_trace_when_asked_and_by_itself(bench: Seat) -> None:
    trace = SCENE.scene.trace(0.5, 9)

    class Traces:
        async def root_of(self, order: Hash32, segment: int) -> Any:
            return (Hash32(trace.root), NODE_SALT) if (order, segment) == (SCENE.scene.order_id, 0) else None

        async def trace_of(self, order: Hash32, segment: int) -> Any:
            return (trace, NODE_SALT) if (order, segment) == (SCENE.scene.order_id, 0) else None

    defender = Defender(bench.court.as_account(SCENE.node), SCENE.node, Traces())
    await bench.look()
    seen = ChainView(bench.court.state, bench.court.block)
    assert await defender.show(seen, bench.court.case_id, 0) is None
    await bench.commit()
    seen = ChainView(bench.court.state, bench.court.block)
    assert await defender.show(seen, bench.court.case_id, 0) == SCENE.node_reveal
    assert await defender.show(seen, bench.court.case_id, 1) is None
    await defender.tick(seen)
    assert "revealNode" not in bench.court.sent
    bench.court.mine(WINDOWS.reveal_window * 5 // 8)
    for _ in range(2):
        await defender.tick(ChainView(bench.court.state, bench.court.block))
    assert bench.court.sent.count("revealNode") == 1


async def test_prompts_are_dropped_with_the_case(bench: Seat) -> None:
    bench.gatherer.inbox.keep(bench.court.case_id, "evidence", 0, b"prompt")
    await bench.look()
    assert list(bench.gatherer.inbox.every(bench.court.case_id, "evidence", 0)) == [b"prompt"]
    bench.court.mine(WINDOWS.commit_window + 1)
    await bench.court.send(calls.expire(bench.court.contracts, bench.court.case))
    bench.court.mine(WINDOWS.lookahead + WINDOWS.draw_window + 1)
    await bench.court.send(calls.expire(bench.court.contracts, bench.court.case))
    await bench.look()
    assert bench.gatherer.inbox.cases() == ()
    assert bench.record.hearings() == ()


async def test_only_reviewers_are_given_prompts(bench: Seat) -> None:
    held = of_journey(SCENE.scene, SCENE.journey)

    class Holdings:
        async def evidence_of(self, order: Hash32) -> Evidence:
            return held

        async def rows_of(self, order: Hash32, segment: int) -> bytes:
            return b"r" * 100

    desk = CaseContext(lambda: ChainView(bench.court.state, bench.court.block), holdings=Holdings())
    fetch = Fetch(bench.court.case_id, "evidence", 0)
    header, payload = await desk.handle(REVIEWER, fetch, memoryview(b""))
    assert files.decode(payload) == held
    assert header.size == len(payload)
    _, tail = await desk.handle(REVIEWER, Fetch(bench.court.case_id, "rows", 0, 90), memoryview(b""))
    assert tail == b"r" * 10
    for stranger in (TAB.payee, TAB.payer, address(9)):
        with pytest.raises(NotYours):
            await desk.handle(stranger, fetch, memoryview(b""))
    with pytest.raises(NotYours):
        await desk.handle(REVIEWER, Fetch(hash_of("no case"), "evidence", 0), memoryview(b""))
    assert desk.authorise(REVIEWER)
    assert desk.authorise(TAB.payer)
    assert not desk.authorise(address(9))


async def test_who_will_be_drawn_is_given_what_it_needs_and_nobody_else_is(tmp_path: Path) -> None:
    bench = Seat(tmp_path)
    bench.court.foresees = True

    class Holdings:
        async def evidence_of(self, order: Hash32) -> Evidence:
            return of_journey(SCENE.scene, SCENE.journey)

        async def rows_of(self, order: Hash32, segment: int) -> bytes:
            return b""

    fetch = Fetch(bench.court.case_id, "evidence", 0)
    desk = CaseContext(bench.seen, bench.reviewer, holdings=Holdings(), courtroom=bench.court)
    with pytest.raises(NotYours):
        await desk.handle(REVIEWER, fetch, memoryview(b""))
    bench.court.mine(WINDOWS.lookahead)
    assert (await desk.handle(REVIEWER, fetch, memoryview(b"")))[1]
    assert (await desk.handle(TAB.payer, Furnish(fetch.case, "rows", 0, 0, 8), memoryview(b"some")))[0].held == 4
    for stranger in (TAB.payee, TAB.payer):
        with pytest.raises(NotYours):
            await desk.handle(stranger, fetch, memoryview(b""))
    # Who cannot look at the chain itself waits for the draw.
    with pytest.raises(NotYours):
        await CaseContext(bench.seen, holdings=Holdings()).handle(REVIEWER, fetch, memoryview(b""))


async def test_a_desk_hands_out_pledges_and_showings(bench: Seat) -> None:
    desk = CaseContext(lambda: ChainView(bench.court.state, bench.court.block), bench.reviewer)
    case = bench.court.case_id
    header, payload = await desk.handle(TAB.payer, Pledge(case, 0), memoryview(b""))
    assert (header.ready, payload) == (False, b"")
    await bench.look()
    header, payload = await desk.handle(TAB.payer, Pledge(case, 0), memoryview(b""))
    assert header.ready
    assert (await desk.handle(TAB.payer, Pledge(case, 1), memoryview(b"")))[0].ready is False
    await bench.commit()
    header, payload = await desk.handle(TAB.payer, Show(case, 0, "reviewer"), memoryview(b""))
    assert header.ready
    assert (await desk.handle(TAB.payer, Show(case, 0, "node"), memoryview(b"")))[0].ready is False
    with pytest.raises(NotYours):
        await CaseContext(desk.seen).handle(TAB.payer, Furnish(case, "evidence", 0, 0, 4), memoryview(b"some"))
    given = await desk.handle(TAB.payer, Furnish(case, "rows", 0, 0, 8), memoryview(b"some"))
    assert given[0].held == 4
    given = await desk.handle(TAB.payer, Furnish(case, "rows", 0, 4, 8), memoryview(b"more"))
    assert list(bench.gatherer.inbox.every(case, "rows", 0)) == [b"somemore"]


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
