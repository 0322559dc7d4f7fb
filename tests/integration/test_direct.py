"""Orders that enter at a running node: tokens, result and check come by way of it, and the scheduler only signs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.direct_network import DirectNetwork, direct_network
from support.waiting import eventually
from unit.test_early_ends import SlowNodes

from troth.client.choices import SamplingChoices
from troth.client.orders import checking, course
from troth.client.orders.asking import ask
from troth.client.orders.journal import Phase
from troth.client.orders.updates import EndedUpdate, FinishedUpdate, OrderOutcome, SentUpdate, ServedUpdate, TextUpdate
from troth.client.orders.wishes import CheckWish, Wish
from troth.node.errors import NotAMember
from troth.protocol.market import checks, messages
from troth.protocol.market.prices import MILLION
from troth.protocol.wire_group import Listen, Recall
from troth.scheduler.orders import service as scheduler_orders

pytestmark = [pytest.mark.chain, pytest.mark.slow]

PROMPT = tuple(range(3, 23))
ALWAYS = Wish(SamplingChoices(12), CheckWish("lot", MILLION))


async def asked(network: DirectNetwork, prompt: tuple[int, ...] = PROMPT) -> list[Any]:
    network.network.stage.anvil.mine(1)
    await network.follower.catch_up()
    await network.network.scheduler.ledger.catch_up()
    return [update async for update in ask(network.session, prompt, ALWAYS)]


def ended(updates: list[Any]) -> EndedUpdate:
    (found,) = (update for update in updates if isinstance(update, EndedUpdate))
    return found


async def test_an_answer_and_its_check_reach_the_client_by_way_of_a_node(anvil: Any, tmp_path: Path) -> None:
    async with direct_network(anvil, tmp_path) as network:
        updates = await asked(network)
        assert ended(updates).outcome is OrderOutcome.CHECKED
        (entry,) = network.session.journal.all()
        assert entry.phase is Phase.CHECKED
        assert entry.tokens
        assert not [path for path in network.asked if "/v1/orders" in path], network.asked
        (sent,) = (update for update in updates if isinstance(update, SentUpdate))
        history = network.network.scheduler.orders.context.store.get(sent.order)
        assert history.tokens == entry.tokens
        counters = network.parts(network.entry).entry.tools.counters
        assert counters.tokens._value.get() == len(entry.tokens)
        assert counters.checks._value.get() == 1
        # What strangers and members may hear of it.
        listening = network.parts(history.admitted.nodes[0]).listening
        listening._patience = 0.3
        heard, payload = await listening.listen(Listen(sent.order, bytes(32), 0))
        assert (heard.count, payload) == (0, b"")
        heard, payload = await listening.listen(Listen(sent.order, history.salt, 0))
        assert heard.count == len(entry.tokens)
        assert b"signature" in payload
        _, word = await listening.recall(Recall(sent.order, 0, "verdict"))
        assert word == b""
        scheduler = network.network.stage.scheduler.address
        with pytest.raises(NotAMember):
            await network.parts(network.entry).side.handle(
                scheduler, Listen(sent.order, history.salt, 0), memoryview(b"")
            )


async def test_the_scheduler_admits_of_those_drawn_whom_the_entry_wants(
    anvil: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with direct_network(anvil, tmp_path) as network:
        hints: list[Any] = []
        whole = scheduler_orders.admit

        async def noted(context: Any, sent: Any, preferred: Any, entering: Any) -> Any:
            hints.append(preferred)
            return await whole(context, sent, preferred, entering)

        monkeypatch.setattr(scheduler_orders, "admit", noted)
        dealing = network.parts(network.entry).entry.tools.dealing
        wanted = [key.address for key in network.network.stage.nodes]
        monkeypatch.setattr(dealing._group, "ranking", lambda _path: tuple(wanted))
        for number in range(3):
            updates = await asked(network, (*PROMPT, number))
            (sent,) = (update for update in updates if isinstance(update, SentUpdate))
            history = network.network.scheduler.orders.context.store.get(sent.order)
            context = network.network.scheduler.orders.context
            view = context.view(history.order, history.admitted.tab)
            (drawn,) = checks.candidates(history.order, history.admitted.infer_proof, view)
            assert history.admitted.nodes[0] == min(drawn, key=wanted.index)
        assert hints == [tuple(wanted)] * 3


async def test_an_answer_of_which_nobody_wants_more_ends_by_way_of_its_node(anvil: Any, tmp_path: Path) -> None:
    """Its node is ahead of the scheduler that ends it; what is paid is what the scheduler was given."""
    async with direct_network(anvil, tmp_path) as network:
        orders = network.network.scheduler.orders
        nodes, ending, updates = SlowNodes(orders.context.peers), asyncio.Event(), []
        network.network.stage.anvil.mine(1)
        await network.follower.catch_up()
        await network.network.scheduler.ledger.catch_up()
        wish = Wish(SamplingChoices(200), CheckWish("lot", MILLION))
        async for update in ask(network.session, PROMPT, wish, ending=ending):
            updates.append(update)
            if isinstance(update, TextUpdate) and not ending.is_set():
                ending.set()
                await eventually(lambda: any(path.endswith("/end") for path in network.asked))
                nodes.go.set()
        assert ended(updates).outcome is OrderOutcome.CHECKED
        (entry,) = network.session.journal.all()
        history = orders.context.store.get(entry.identifier)
        assert history.tokens == entry.tokens
        assert 1 <= len(entry.tokens) < 200
        assert entry.paid == entry.fee
        (result,) = history.answered.results
        assert result.message.written == len(entry.tokens)
        assert 0 < (entry.fee or 0) < entry.most * (len(PROMPT) + len(entry.tokens) + 1) // (len(PROMPT) + 200)
        (finished,) = (update for update in updates if isinstance(update, FinishedUpdate))
        assert finished.tokens == len(entry.tokens)
        said = [path for path in network.asked if "/v1/orders" in path]
        assert said == [f"POST /v1/orders/0x{entry.identifier.hex()}/end"], "all else came by way of the node"


async def test_the_order_goes_on_at_its_scheduler_when_the_entry_dies_under_it(
    anvil: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course, "ENTRY_SECONDS", 60.0)
    monkeypatch.setattr(checking, "ENTRY_SECONDS", 2.0)
    gone, whole = asyncio.Event(), course.Course._next

    async def impatient(one: Any, lines: Any) -> Any:
        # However long this machine takes for the first lines: it is silence after them that is waited out.
        if gone.is_set() and one._hearsay:
            one._patience = 2.0
        return await whole(one, lines)

    monkeypatch.setattr(course.Course, "_next", impatient)

    def cut(app: Any) -> Any:
        """A node that is gone after it has sent so many lines."""

        async def cutting(scope: Any, receive: Any, send: Any) -> None:
            sent = 0

            async def some(message: Any) -> None:
                nonlocal sent
                sent += message["type"] == "http.response.body"
                if sent == 6:
                    gone.set()
                if sent > 6:
                    await asyncio.sleep(3600)
                await send(message)

            await app(scope, receive, some if scope["type"] == "http" else send)

        return cutting

    async with direct_network(anvil, tmp_path, cut) as network:
        updates = await asked(network)
        assert ended(updates).outcome is OrderOutcome.CHECKED
        assert len([update for update in updates if isinstance(update, SentUpdate)]) == 1
        (entry,) = network.session.journal.all()
        served = [update for update in updates if isinstance(update, ServedUpdate)]
        assert {one.nodes for one in served} == {served[0].nodes}
        text = "".join(update.text for update in updates if isinstance(update, TextUpdate))
        language = network.session.language
        assert language is not None
        assert text == language.decode(list(entry.tokens))
        assert [path for path in network.asked if path == f"GET /v1/orders/{entry.name}"]
        assert not [path for path in network.asked if path == "POST /v1/orders"]
        assert messages.order_id(entry.submission.order.message, network.session.domain) == entry.identifier  # type: ignore[union-attr]
