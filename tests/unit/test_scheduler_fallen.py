"""What is owed for answers that fell, and to nodes that signed where another one did not; silence that is convicted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.market_logs import CONTRACTS, META
from support.tab_scene import CLIENT_TAB, DOMAIN, TAB_KEY, VRF_SECRET, Asked, TabScene
from support.tabs_stage import _key

from troth.chain.errors import ChainRejected
from troth.client.orders.summoning import AutomaticSummons
from troth.protocol import vrf
from troth.protocol.market import canonical, messages, tabs, views
from troth.protocol.market.bodies import Acknowledgement
from troth.protocol.market.checks import candidates
from troth.protocol.market.messages import sign
from troth.protocol.market.proceedings import Fault, SummonsKind
from troth.protocol.market.state import ConvictionRecord
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_market import Conclude
from troth.scheduler.tabs.fallen import forgive_fallen


async def acknowledge(scene: TabScene, paid: int) -> int:
    voucher = tabs.acknowledge(scene.payer, 1, paid).voucher
    body = Acknowledgement(CLIENT_TAB, sign(voucher, DOMAIN, TAB_KEY))
    return (await scene.http.post("/v1/vouchers", content=canonical.encode(body))).status_code


def convict(scene: TabScene, node: Any) -> None:
    state, fault = scene.ledger.state, ConvictionRecord(Fault.FALSE_RESULT, Hash32(bytes(32)), 0, 10**9, META)
    scene.ledger.state = replace(state, convictions=state.convictions.set(node, (fault,)))


@pytest.mark.parametrize("fell", [True, False])
async def test_an_answer_that_fell_is_acknowledged_with_nothing_and_the_tab_goes_on(tmp_path: Path, fell: bool) -> None:
    scene = TabScene(tmp_path)
    scene.start()
    asked = await scene.send(scene.asked())
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    if fell:
        convict(scene, history.admitted.nodes[0])
    # For an answer that stands, a word that pays nothing is refused, and so would be every later one.
    assert await acknowledge(scene, 0) == (200 if fell else 409)
    assert scene.context.client_tabs.book(asked.order.tab).exposure == 0 or not fell
    await scene.stop()


async def test_an_order_on_a_tab_with_a_fallen_answer_is_taken(tmp_path: Path) -> None:
    scene = TabScene(tmp_path)
    scene.start()
    asked = await scene.send(scene.asked())
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    convict(scene, history.admitted.nodes[0])
    scene.payer = tabs.acknowledge(scene.payer, 1, 0)
    again = await scene.send(scene.asked())
    assert again.lines[0]["type"] == "admitted"
    await scene.stop()


async def test_what_stands_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, looked = TabScene(tmp_path), list[Hash32]()
    scene.start()
    asked = await scene.send(scene.asked())
    assert forgive_fallen(scene.context, asked.order.tab) == []
    monkeypatch.setattr(scene.context.store, "get", looked.append)
    assert forgive_fallen(scene.context, asked.order.tab) == []
    assert looked == []
    monkeypatch.undo()
    await scene.stop()


async def test_a_node_that_signed_is_paid_though_the_one_before_it_did_not(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, ends=(1, 2))
    scene.start()
    asked, first = _asked_of_others_in_each_segment(scene)
    for node in first:
        scene.nodes[node].faults.refuses = {Conclude}
    await scene.send(asked)
    await scene.orders.drain()
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    assert asked.lines[-1]["type"] == "failed"
    owed = [next(iter(scene.context.node_tabs.held(node).owed.values())) for node in history.admitted.nodes]
    assert owed[0].fee == 0
    assert (owed[1].fee or 0) > 0
    await scene.stop()


def _asked_of_others_in_each_segment(scene: TabScene) -> tuple[Asked, tuple[Address, ...]]:
    """An order for whose segments no node is drawn twice, and the nodes that are drawn for its first."""
    payer = scene.payer
    while True:
        scene.payer = payer
        asked = scene.asked()
        view = views.view_of(
            scene.ledger.state, asked.order, CLIENT_TAB, chain_id=31337, block=scene.ledger.block, time=scene.now
        )
        first, second = candidates(asked.order, vrf.prove(VRF_SECRET, messages.infer_alpha(asked.order_id)), view)
        if not set(first) & set(second):
            return asked, tuple(first)


class Sent:
    """A chain that notes what is sent to it."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.calls: list[Any] = []
        self.contracts = CONTRACTS
        self._refuses = refuses

    async def execute(self, call: Any, _key: Any) -> Any:
        self.calls.append(call)
        if self._refuses:
            answered: Any = SimpleNamespace(name="AlreadyAnswered", arguments=(), remedy="Look again.")
            raise ChainRejected("convict", answered)
        return SimpleNamespace(transaction=b"\x01" * 32)


@pytest.mark.parametrize(
    ("block", "mine", "answered", "ended"),
    [(21, True, None, 1), (20, True, None, 0), (21, False, None, 0), (21, True, True, 0)],
)
async def test_a_client_convicts_the_silence_that_its_own_summons_met(
    monkeypatch: pytest.MonkeyPatch, block: int, mine: bool, answered: bool | None, ended: int
) -> None:
    key = _key("summoner")
    summoner = key.address if mine else _key("another").address
    order = Hash32(b"\x06" * 32)
    summoned = SimpleNamespace(summoner=summoner, deadline=20, kind=SummonsKind.CHECK, order=order)
    record = SimpleNamespace(state=summoned, answered=answered)
    state: Any = SimpleNamespace(summons={Hash32(b"\x05" * 32): record})
    monkeypatch.setattr("troth.client.orders.summoning.convict_silence", lambda *words: words)
    for refuses in (False, True):
        chain: Any = Sent(refuses=refuses)
        summons = AutomaticSummons(chain, None, key, 1)  # type: ignore[arg-type]
        overdue = summons.overdue(state, block)
        assert len(overdue) == ended
        for name, one in overdue.items():
            if refuses:
                with pytest.raises(ChainRejected):
                    await summons.end(name, one)
            else:
                assert "convicted on chain" in await summons.end(name, one)
        assert len(chain.calls) == ended
