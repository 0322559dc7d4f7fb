"""An answer of which its client wants no more ends there: what is written is signed, checked and paid, and no more is.

Without the client's word in its request nobody may end an answer, so that no scheduler or node can cut one short.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from support.order_network import build
from support.tab_scene import TabScene, history_of, view_of
from support.toy_entry import said as said_by_node
from support.toy_entry import toy_entry
from support.toy_market import NODE_KEYS
from support.toy_tab_lines import line_of
from support.toy_tab_scheduler import ToyOrder
from support.toy_tab_stage import Stage, restarted, toy_stage
from support.waiting import eventually
from unit.test_scheduler_orders import journey_of
from unit.test_tabs_asking import ALWAYS, PROMPT, ended, text_of

from troth.client.errors import SchedulerUnreachable
from troth.client.orders.asking import ask
from troth.client.orders.calls import MarketCalls
from troth.client.orders.ending import end_answers
from troth.client.orders.failing import OrderContradicted, OrderFailed
from troth.client.orders.journal import Phase
from troth.client.orders.session import TabContext
from troth.client.orders.updates import FinishedUpdate, OrderOutcome, TextUpdate
from troth.node.direct.hearing import WORD_LIMIT
from troth.node.direct.listening import AnswerListening
from troth.node.errors import OutOfOrder
from troth.node.orders.telling import GrowingAnswer
from troth.protocol.market import canonical
from troth.protocol.market.bodies import Results
from troth.protocol.market.life import live
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Opinion, Result
from troth.protocol.request import Request, canonical_bytes, from_canonical_bytes, request_terms
from troth.protocol.tensors import TOKEN_BYTES
from troth.protocol.tokens import judge_tokens
from troth.protocol.types import Hash32
from troth.protocol.wire_decoding import WantedText
from troth.protocol.wire_group import Listen

SALT = Hash32(b"\x05" * 32)


def request(*, may_end_early: bool, end_tokens: tuple[int, ...] = (9,)) -> Request:
    return Request(Hash32(b"\x01" * 32), (1, 2, 3), 6, 0, 1_000_000, end_tokens, may_end_early=may_end_early)


# ---- the rules


@pytest.mark.parametrize(("kept", "reason"), [(2, "length"), (3, "stop")])
def test_an_answer_that_is_cut_before_its_own_end_does_not_end_as_it_would_have(kept: int, reason: str) -> None:
    """A node is ahead of who ends an answer, and may have written its last token by then."""
    answer = GrowingAnswer()
    for token, finished in ((1, None), (2, None), (3, "stop")):
        answer.add(token, finished)  # type: ignore[arg-type]
    answer.conclude(b"signed", kept)
    assert (len(answer.tokens), answer.finished) == (kept, reason)


def test_a_request_says_whether_its_text_may_end_early() -> None:
    plain, early = (request(may_end_early=one) for one in (False, True))
    for one in (plain, early):
        assert from_canonical_bytes(canonical_bytes(one)) == one
    assert request_terms(plain, SALT) != request_terms(early, SALT)
    assert len(request_terms(early, SALT)[0]) == 45, "what proofs show to the contract has one width"
    assert [
        place
        for place in range(len(canonical_bytes(plain)))
        if canonical_bytes(plain)[place] != canonical_bytes(early)[place]
    ] == [33]


@pytest.mark.parametrize(("tokens", "plain", "early"), [
    ((4, 5, 6, 7, 8, 4), True, True),
    ((4, 5), False, True),
    ((4, 9), True, True),
    ((4, 9, 5), False, False),
    ((4, 5, 6, 7, 8, 4, 5), False, False),
])  # fmt: skip
def test_a_verifier_takes_an_early_end_where_the_request_allows_it(
    tokens: tuple[int, ...], plain: bool, early: bool
) -> None:
    for allowed, fine in ((False, plain), (True, early)):
        report = judge_tokens(np.zeros(len(tokens)), tokens, request(may_end_early=allowed), 0.5)
        assert report.end_ok is report.accepted is fine


# ---- a node


def session_of(network: Any, ordered: Any) -> Any:
    """What the node that serves an order has of it."""
    return network.nodes[ordered.nodes[0]].service._sessions[ordered.order_id, 0, "infer"]


@pytest.mark.parametrize("ends", [(2,), (1, 2)])
async def test_nodes_sign_for_what_is_written_and_verifiers_accept_it(tmp_path: Path, ends: tuple[int, ...]) -> None:
    network = build(tmp_path, ends=ends)
    ordered = await network.infer(network.order(may_end_early=True), until=3)
    network.draw(await network.conclude(ordered))
    assert [one.message.written for one in ordered.results] == [3] * len(ends)
    for segment in range(len(ends)):
        check = await network.check(ordered, segment)
        assert {one.message.opinion for one in check.verdicts.values()} == {Opinion.ACCEPT}


async def test_a_node_signs_no_part_of_an_answer_whose_client_did_not_allow_it(tmp_path: Path) -> None:
    network = build(tmp_path)
    ordered = await network.infer(network.order(), until=3)
    with pytest.raises(OutOfOrder, match="not ended"):
        await network.conclude(ordered)


async def test_a_scheduler_pays_for_all_that_a_node_gave_it(tmp_path: Path) -> None:
    """Else it would take whole texts and conclude them after their first token."""
    network = build(tmp_path)
    ordered = await network.infer(network.order(may_end_early=True), until=4)
    ordered.tokens.pop()
    with pytest.raises(OutOfOrder, match="were given"):
        await network.conclude(ordered)
    given = session_of(network, ordered).text.emitted
    ordered.tokens.append(given[ordered.positions])
    await network.conclude(ordered)


async def test_whoever_listens_to_a_node_hears_its_result_where_the_answer_ends_early(tmp_path: Path) -> None:
    """And nothing that the node wrote beyond that."""
    network = build(tmp_path)
    ordered = await network.infer(network.order(may_end_early=True, max_tokens=40), until=2)
    node, session = network.nodes[ordered.nodes[0]], session_of(network, ordered)
    listening = AnswerListening(node.context, patience=2.0)
    listening.began(session)
    await eventually(lambda: session.rows.positions > ordered.positions + 4)
    (result,) = (await network.conclude(ordered)).results
    for start in (0, 1, 2, 7):
        # Who has heard what was written ahead hears the end, too.
        heard, payload = await listening.listen(Listen(ordered.order_id, session.seat.salt, start))
        assert (heard.count, heard.finished) == (max(2 - start, 0), "length")
        rest = payload[heard.count * TOKEN_BYTES :]
        assert canonical.decode(Signed[Result], rest, WORD_LIMIT) == result


# ---- a scheduler


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[TabScene]:
    made = TabScene(tmp_path)
    made.start()
    yield made
    await made.stop()


class SlowNodes:
    """Nodes that write on only after ``go`` is set; of a text they gave more than was taken, ``beyond`` times."""

    def __init__(self, peers: Any) -> None:
        self.go, self.asked, self.beyond = asyncio.Event(), 0, 0
        texts = peers.texts

        def held(node: Any) -> Any:
            following, slow = texts(node), self

            class Held:
                async def next(self, wanted: WantedText, timeout: float, slowly: float) -> Any:
                    slow.asked += 1
                    await slow.go.wait()
                    return await following.next(wanted, timeout, slowly)

                async def took_all(self, order: Hash32, start: int) -> bool:
                    slow.beyond -= 1
                    return slow.beyond < 0 and await following.took_all(order, start)

            return Held()

        peers.texts = held


def end_of(scene: TabScene, order: Hash32, salt: bytes) -> Any:
    return scene.http.post(f"/v1/orders/0x{order.hex()}/end", headers={"troth-salt": "0x" + salt.hex()})


async def test_a_scheduler_ends_an_answer_for_its_client_alone(scene: TabScene) -> None:
    nodes, asked = SlowNodes(scene.peers), scene.asked(max_tokens=60, may_end_early=True)
    sending = asyncio.create_task(scene.send(asked))
    await eventually(lambda: nodes.asked)
    assert (await end_of(scene, asked.order_id, b"\x01" * 32)).status_code == 404, "a stranger knows no salt"
    assert (await end_of(scene, asked.order_id, asked.submission.salt)).json() == {"ending": True}
    nodes.go.set()
    await sending
    assert 1 < len(asked.tokens) < 60
    assert asked.of("results")["reason"] == "length"
    live(journey_of(scene, asked), view_of(scene, asked))
    assert history_of(scene, asked).answered.results[-1].message.written == len(asked.tokens)
    assert (await scene.show(asked))[-1]["complete"], "its check goes as any other"
    assert (await end_of(scene, asked.order_id, asked.submission.salt)).status_code == 200, "again: nothing happens"


async def test_what_a_node_gave_beside_what_was_taken_is_taken_before_an_early_end(scene: TabScene) -> None:
    """It signs for no less than it gave."""
    nodes, asked = SlowNodes(scene.peers), scene.asked(max_tokens=60, may_end_early=True)
    nodes.beyond = 2
    sending = asyncio.create_task(scene.send(asked))
    await eventually(lambda: nodes.asked)
    await end_of(scene, asked.order_id, asked.submission.salt)
    nodes.go.set()
    await sending
    assert nodes.asked == 1 + 2


async def test_an_answer_that_must_be_whole_is_not_ended(scene: TabScene) -> None:
    nodes, asked = SlowNodes(scene.peers), scene.asked(max_tokens=20)
    sending = asyncio.create_task(scene.send(asked))
    await eventually(lambda: nodes.asked)
    refused = await end_of(scene, asked.order_id, asked.submission.salt)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "ends_in_full")
    nodes.go.set()
    await sending
    assert len(asked.tokens) == 20


# ---- a client


def held_open(scheduler: Any) -> Any:
    """Lines that go on after the tokens once the scheduler is told to end."""

    def tamper(_one: ToyOrder, lines: list[Any]) -> list[Any]:
        return [*lines[:-2], scheduler.ended, *lines[-2:]]

    return tamper


async def test_a_client_pays_for_what_was_written_when_it_wanted_no_more(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        whole = [one async for one in ask(stage.session, PROMPT, ALWAYS)]
        stage.scheduler.writes, stage.scheduler.tamper = 5, held_open(stage.scheduler)
        ending, updates = asyncio.Event(), []
        async with aclosing(ask(stage.session, PROMPT, ALWAYS, ending=ending)) as answer:
            async for update in answer:
                updates.append(update)
                if isinstance(update, TextUpdate):
                    ending.set()
        assert text_of(updates) == "hello"
        (finished,) = (one for one in updates if isinstance(one, FinishedUpdate))
        assert (finished.reason, finished.tokens) == ("length", 5)
        assert ended(updates).outcome is OrderOutcome.CHECKED
        assert 0 < ended(updates).fee < ended(whole).fee
        assert stage.scheduler.calls_of.count("end") == 1
        assert len(stage.session.journal.all()) == 2, "the rest is not ordered anew"


async def test_an_answer_that_its_scheduler_cut_short_is_a_contradiction(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.writes = 5
        with pytest.raises(OrderContradicted, match="does not end as the scheduler says"):
            await ask_whole(stage)
        (entry,) = stage.session.journal.all()
        assert (entry.phase, stage.book().spent) == (Phase.CONTRADICTED, 0)


async def test_results_that_count_no_token_of_an_answer_that_was_ended_are_a_contradiction(tmp_path: Path) -> None:
    async with toy_stage(tmp_path) as stage:
        ending, scheduler = asyncio.Event(), stage.scheduler

        def counted_as_nothing(one: ToyOrder, lines: list[Any]) -> list[Any]:
            results, _ = scheduler._served(one.submission, one.request, one.identifier, one.view, one.nodes, [])
            return [*lines[:3], scheduler.ended, line_of("results", Results("length", results))]

        scheduler.tamper = counted_as_nothing

        async def left_at_once() -> None:
            async for update in ask(stage.session, PROMPT, ALWAYS, ending=ending):
                if isinstance(update, TextUpdate):
                    ending.set()

        with pytest.raises(OrderContradicted, match="does not end as the scheduler says"):
            await left_at_once()
        (entry,) = stage.session.journal.all()
        assert (entry.phase, stage.book().spent) == (Phase.CONTRADICTED, 0)


def silent_after_its_tokens(_one: ToyOrder, lines: list[Any]) -> list[Any]:
    return [*lines[:-2], None, *lines[-2:]]


async def left_behind(stage: Stage, ending: asyncio.Event, *, told: bool) -> ToyOrder:
    """An order whose process goes away after its tokens, having asked for its end or not; a keeper took it up again."""
    stage.scheduler.writes, stage.scheduler.tamper = 5, silent_after_its_tokens
    async with aclosing(ask(stage.session, PROMPT, ALWAYS, ending=ending)) as answer:
        async for update in answer:
            if isinstance(update, TextUpdate) and update.text == "o":
                break
            if told and isinstance(update, TextUpdate):
                ending.set()
                await eventually(lambda: "end" in stage.scheduler.calls_of)
    (order,) = stage.scheduler.orders.values()
    order.lines.remove(None)
    await restarted(stage, 2)
    return order


@pytest.mark.parametrize("told", [False, True])
async def test_an_order_of_a_process_that_died_ends_early_only_where_its_client_had_asked(
    tmp_path: Path, told: bool
) -> None:
    async with toy_stage(tmp_path) as stage:
        await left_behind(stage, asyncio.Event(), told=told)
        (entry,) = stage.session.journal.all()
        if told:
            assert (entry.phase, entry.paid) == (Phase.CHECKED, entry.fee)
            assert len(entry.tokens) == 5
        else:
            assert entry.failure is not None
            assert "does not end as the scheduler says" in entry.failure
            assert (entry.phase, stage.book().spent) == (Phase.CONTRADICTED, 0)


async def test_the_wish_for_an_end_is_written_down_before_anybody_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies in between must take what its scheduler did on its word."""
    async with toy_stage(tmp_path) as stage:
        seen = []

        async def told(_calls: MarketCalls, order: Hash32, _salt: Hash32) -> None:
            seen.append(stage.session.journal.entry(order).asked_to_end)

        monkeypatch.setattr(MarketCalls, "end", told)
        ending = asyncio.Event()
        async with aclosing(ask(stage.session, PROMPT, ALWAYS, ending=ending)) as answer:
            async for update in answer:
                if isinstance(update, TextUpdate):
                    ending.set()
                    await eventually(lambda: seen)
        assert seen == [True]
        await ask_whole(stage)
        entry = stage.session.journal.all()[0]
        assert not entry.asked_to_end
        assert await end_answers(stage.session, [entry])
        assert seen == [True, True], "so is that of whoever interrupts a client"


@pytest.mark.parametrize("entry_is_heard", [True, False])
async def test_an_answer_that_entered_at_a_node_ends_early_too(tmp_path: Path, entry_is_heard: bool) -> None:
    """Its node tells tokens that the scheduler never asked for; they are neither paid nor counted."""
    async with toy_stage(tmp_path) as stage, toy_entry(stage, nodes=tuple(NODE_KEYS)) as entry:
        scheduler, whole = stage.scheduler, len(stage.scheduler.answer)
        await ask_whole(stage)
        scheduler.writes, scheduler.tamper = 5, held_open(scheduler)
        scheduler.calls_of.clear()

        def ahead(one: ToyOrder, lines: list[Any]) -> list[Any]:
            more = []
            for place in range(5, 8):
                token = {"type": "token", "position": place, "id": scheduler.answer[place]}
                more += [token, said_by_node(one, scheduler.answer[: place + 1])]
            return [*lines[:-3], *more, scheduler.ended, *(lines[-2:] if entry_is_heard else [])]

        entry.tamper = ahead
        ending, updates = asyncio.Event(), []
        async for update in ask(stage.session, PROMPT, ALWAYS, ending=ending):
            updates.append(update)
            if text_of(updates) == "hello wo":
                ending.set()
        ended_early, plain = stage.session.journal.all()
        assert text_of(updates) == "hello wo", "it was heard before the end"
        (finished,) = (one for one in updates if isinstance(one, FinishedUpdate))
        assert (finished.reason, finished.tokens) == ("length", 5)
        assert (len(ended_early.tokens), len(plain.tokens)) == (5, whole)
        assert ended_early.paid == ended_early.fee < plain.fee
        assert (scheduler.calls_of.count("end"), "again" in scheduler.calls_of) == (1, not entry_is_heard)
        entrance, tokens = stage.session.entrance, (*PROMPT, *ended_early.tokens)
        assert entrance is not None
        blamed = [node for node in NODE_KEYS if node in entrance._choice._shunned]
        assert (blamed, entrance._prefixes.near((*tokens, *range(32))) is not None) == ([], len(tokens) >= 32)


async def ask_whole(stage: Stage) -> None:
    async for _ in ask(stage.session, PROMPT, ALWAYS):
        pass


async def test_where_the_word_does_not_get_through_the_answer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_given: object) -> None:
        raise SchedulerUnreachable("no way", "", "") from httpx.ConnectError("gone")

    monkeypatch.setattr(MarketCalls, "end", lost)
    async with toy_stage(tmp_path) as stage:
        ending, updates = asyncio.Event(), []
        async for update in ask(stage.session, PROMPT, ALWAYS, ending=ending):
            updates.append(update)
            ending.set()
        assert (text_of(updates), ended(updates).outcome) == ("hello world", OrderOutcome.CHECKED)


@pytest.mark.parametrize("meanwhile", [False, True])
async def test_nothing_is_ordered_for_a_reader_that_has_left(tmp_path: Path, meanwhile: bool) -> None:
    async with toy_stage(tmp_path) as stage:
        scheduler, ending = stage.scheduler, asyncio.Event()
        scheduler.delay = 0.2
        if not meanwhile:
            ending.set()
        asking = asyncio.create_task(updates_of(stage, ending))
        if meanwhile:
            await eventually(lambda: "prices" in scheduler.calls_of)
            ending.set()
        assert await asking == []
        assert "order" not in scheduler.calls_of
        assert (stage.session.journal.all(), stage.book().authorised) == ([], 0)


async def test_an_order_that_failed_is_not_followed_by_one_for_a_reader_that_has_left(tmp_path: Path) -> None:
    async with toy_stage(tmp_path, schedulers=2) as stage:
        failed = {"type": "failed", "code": "node_failed", "message": "its node is gone", "remedy": ""}
        for scheduler in stage.schedulers:
            scheduler.tamper = lambda _one, lines: [lines[0], failed]
        ending, place = asyncio.Event(), stage.session.open_tab_context
        placed: list[Any] = []

        async def placing(tab_context: TabContext) -> Any:
            if placed:
                ending.set()
            placed.append(tab_context)
            return await place(tab_context)

        stage.session.open_tab_context = placing  # type: ignore[method-assign]
        with pytest.raises(OrderFailed, match="its node is gone"):
            await updates_of(stage, ending)
        assert (len(placed), len(stage.session.journal.all())) == (2, 1)


async def updates_of(stage: Stage, ending: asyncio.Event) -> list[Any]:
    return [one async for one in ask(stage.session, PROMPT, ALWAYS, ending=ending)]
