"""A reviewer against a scripted chain: what it votes, that it never says two things, and how it helps itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases_scene import of_journey
from support.market_case import CaseScene
from support.market_logs import address
from support.market_scene import COLUMNS, DOMAIN, KEYS, PROMPT, TAB, WRITTEN, Scene, execution_class, hash_of
from support.scripted_court import WINDOWS, ScriptedCourt, ScriptedParties

from troth.cases import calls, gathering, hearing
from troth.cases import evidence as files
from troth.cases.courtroom import ChainView
from troth.cases.defending import Defender
from troth.cases.desk import CaseContext
from troth.cases.errors import AlreadyPledged, EvidenceRefused, NotYours
from troth.cases.evidence import Evidence
from troth.cases.gathering import Gathered, Gatherer
from troth.cases.inbox import CASES, SENDERS, CaseInbox
from troth.cases.judging import MOST, JudgingContext, Recomputed, ReviewFinding, committed, fitted, judge
from troth.cases.materials import OrderText, Papers
from troth.cases.record import PledgeRecord, Record
from troth.cases.reviewing import Reviewer, Timing
from troth.protocol.doubts import under_rules
from troth.protocol.market import messages
from troth.protocol.market.types import Opinion, Reveal
from troth.protocol.request import Request
from troth.protocol.tokens import TokenReport
from troth.protocol.types import ZERO_HASH, Hash32
from troth.protocol.wire_cases import Fetch, Furnish, Pledge, Show
from troth.transport.identity import Operator

SCENE = CaseScene()
REVIEWER = SCENE.drawn.reviewers[0]
NODE_SALT = hash_of("node salt")


class Engine:
    """Recompute that gives the scene's true trace, or breaks."""

    def __init__(self) -> None:
        self.runs, self.broken = 0, False

    async def recompute(self, inputs: Any) -> Recomputed:
        self.runs += 1
        if self.broken:
            raise RuntimeError("the model does not fit")
        return Recomputed(true_states())


def true_states() -> np.ndarray:
    return np.random.default_rng(8).normal(size=(PROMPT + WRITTEN - 1, COLUMNS)).astype(np.float32)


def text() -> OrderText:
    request = Request(hash_of("class"), tuple(range(PROMPT)), WRITTEN, 0, 1, ())
    return OrderText(request, tuple(range(WRITTEN)), hash_of("seed"))


class FixedGatherer(Gatherer):
    """Hands over ``found``; everything is there unless a test says so."""

    def __init__(self, folder: Path) -> None:
        inbox = CaseInbox(folder, REVIEWER, 1 << 20)
        super().__init__(REVIEWER, inbox, None)  # type: ignore[arg-type]
        object.__setattr__(self, "found", whole())
        object.__setattr__(self, "asked", 0)

    async def gather(self, state: Any, rules: Any, vrf_key: Any) -> Gathered:
        object.__setattr__(self, "asked", self.asked + 1)
        return self.found  # type: ignore[attr-defined,no-any-return]


def whole() -> Gathered:
    held = of_journey(SCENE.scene, SCENE.journey)
    papers = Papers(held, SCENE.scene.order, (SCENE.result,), 0)
    return Gathered(papers, text(), None, None, (SCENE.node_reveal.root, NODE_SALT))


class Seat:
    """One reviewer with its folders, restartable."""

    def __init__(self, folder: Path, **timing: Any) -> None:
        self.folder, self.timing = folder, Timing(again=0.001, **timing)
        self.court = ScriptedCourt(SCENE, TAB.payer)
        self.parties = ScriptedParties(SCENE, self.court)
        self.engine = Engine()
        self.start()

    def start(self) -> None:
        self.gatherer = FixedGatherer(self.folder / "inbox")
        self.record = Record(self.folder / "record")
        own = self.court.as_account(REVIEWER)
        operator = Operator(KEYS[REVIEWER], DOMAIN)
        self.reviewer = Reviewer(
            own, operator, self.engine, self.gatherer, self.record, self.timing, report=lambda _: None
        )

    async def drawn(self) -> None:
        """Until the reviewers are drawn."""
        self.court.mine(WINDOWS.lookahead + 1)
        await self.court.send(calls.draw_case(self.court.contracts, self.court.case, b"", b""))

    async def commit(self) -> None:
        """Everybody's commitments, this reviewer's own among them."""
        state = self.court.case
        pledges = {one: await self.parties.pledge(one, self.court.case_id, 0) for one in state.reviewers}
        own = await self.pledge()
        assert own is not None
        pledges[REVIEWER] = own
        await self.court.send(calls.commit(self.court.contracts, state, pledges, set()))  # type: ignore[arg-type]

    async def pledge(self) -> Any:
        return await self.reviewer.pledge(self.seen(), self.court.case_id, self.court.case.round)

    def seen(self) -> ChainView:
        return ChainView(self.court.state, self.court.block)

    async def show(self) -> Any:
        return await self.reviewer.show(ChainView(self.court.state, self.court.block), self.court.case_id, 0)

    async def look(self) -> None:
        """One tick, and what it begins to compute is done."""
        await self.reviewer.tick(await self.court.seen())
        await asyncio.sleep(0)
        tasks = list(self.reviewer._preparing.values())
        await asyncio.wait_for(asyncio.gather(*tasks), 5)

    def opinion(self) -> Opinion:
        kept = self.record.find(hearing.hearing_of(self.court.case))
        assert kept
        return Opinion(kept.reveal.opinion)


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


# --------------------------------------------------------------------------------------------------------------- desk


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


# ------------------------------------------------------------------------------------------------------------- opinions


def tolerant(noise: float, **own: Any) -> ReviewFinding:
    scene = CaseScene(Scene())
    node = scene.scene.trace(noise, 9)
    result = replace(scene.result, trace_commitment=messages.trace_commitment(Hash32(node.root), NODE_SALT))
    papers = Papers(of_journey(scene.scene, scene.journey), scene.scene.order, (result,), 0)
    rules = scene.scene.view.rules
    state = replace(scene.opening, rows=PROMPT + WRITTEN - 1)
    rows = (true_states() * (1 + noise * np.random.default_rng(9).normal(size=true_states().shape))).astype(np.float32)
    definition = replace(execution_class(), calibration=own.pop("calibration", ZERO_HASH))
    root = Hash32(committed(state, definition, rules, rows).root)
    bench = JudgingContext(state, definition, rules, papers, own.pop("text", text()))
    given = own.pop("rows", rows.tobytes())
    recomputed = Recomputed(**{"states": true_states(), "text": own.pop("report", None), **own})
    return judge(bench, recomputed, given, (root, NODE_SALT))


def test_score_and_spread_are_in_millionths_of_the_cut() -> None:
    honest, cheat = tolerant(1e-7), tolerant(0.5)
    assert (honest.opinion, cheat.opinion) == (Opinion.ACCEPT, Opinion.REJECT)
    assert honest.score <= 1_000_000 < 4_000_000 < cheat.score
    assert honest.spread == 0
    again = (true_states() * np.float32(1.01)).astype(np.float32)
    assert tolerant(0.5, again=again).spread > 1_000_000


def test_a_second_look_excuses_what_the_reviewers_own_noise_explains() -> None:
    again = (true_states() * np.float32(1.01)).astype(np.float32)
    calibration = under_rules(ZERO_HASH)
    assert tolerant(0.02, again=again).opinion is Opinion.REJECT
    excused = tolerant(0.02, again=again, calibration=calibration)
    assert (excused.opinion, excused.score <= 1_000_000) == (Opinion.ACCEPT, True)
    assert tolerant(0.5, again=again, calibration=calibration).opinion is Opinion.REJECT
    assert tolerant(0.02, calibration=calibration).opinion is Opinion.REJECT


def test_a_text_that_cannot_be_judged_costs_nobody_anything() -> None:
    noisy = TokenReport(0.5, 0.02, 0.5, 0, True, False, 2.0, told=False)
    assert tolerant(1e-7, report=noisy) == ReviewFinding(Opinion.CANNOT_TELL)
    assert tolerant(1e-7, report=replace(noisy, told=True)).opinion is Opinion.REJECT
    assert tolerant(0.5, report=noisy).opinion is Opinion.REJECT


def test_a_forbidden_token_convicts_however_small_its_share_of_a_window_is() -> None:
    """The court compares scores with the second cut: two logits among 32 tokens may be below it."""
    forbidden = TokenReport(0.0625, 0.05, 0.06, 30, True, False, 2.0, allowed=False)
    found = tolerant(1e-7, report=forbidden)
    assert (found.opinion, found.score) == (Opinion.REJECT, MOST)


def test_rows_that_are_not_the_traces_and_false_counts_are_rejected_beyond_every_cut() -> None:
    other = true_states().tobytes()
    assert tolerant(0.5, rows=other).score == MOST
    assert tolerant(1e-7, rows=other[: -4 * COLUMNS]).score == MOST
    assert tolerant(1e-7, rows=np.full_like(true_states(), np.nan).tobytes()).score == MOST
    short = replace(text(), tokens=text().tokens[:-1])
    counted = tolerant(1e-7, text=short)
    assert (counted.opinion, counted.score) == (Opinion.REJECT, MOST)


def test_a_trace_of_another_length_is_repeated_to_the_cases() -> None:
    states = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert np.array_equal(fitted(states, 4), [[0, 1], [2, 3], [4, 5], [0, 1]])
    assert np.array_equal(fitted(states, 2), states[:2])


def test_holders_are_asked_once_each_and_never_oneself() -> None:
    asked = gathering.holders_of(SCENE.drawn, REVIEWER)
    assert asked[0] == SCENE.drawn.scheduler
    assert len(set(asked)) == len(asked)
    assert REVIEWER not in asked
    assert set(SCENE.drawn.reviewers) - {REVIEWER} < set(asked)
