"""The court in the running network: who cheats is rejected, brought to the court by its verifiers, and convicted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.court_network import CourtNetwork, court_network
from support.waiting import eventually

from troth.protocol.market import messages
from troth.protocol.market.proceedings import Outcome
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import PotKind
from troth.protocol.types import Hash32

pytestmark = [pytest.mark.chain, pytest.mark.slow]


@contextlib.asynccontextmanager
async def blocks(network: CourtNetwork, seconds: float = 0.5) -> AsyncIterator[None]:
    """A chain that goes on by itself."""

    async def mine() -> None:
        while True:
            await asyncio.to_thread(network.stage.anvil.mine, 1)
            await network.follower.catch_up()
            await asyncio.sleep(seconds)

    mining = asyncio.create_task(mine())
    try:
        yield
    finally:
        mining.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await mining


def case_of(network: CourtNetwork, order: Hash32) -> Any:
    return network.follower.state.cases.get(messages.case_id(order, 0))


@pytest.mark.parametrize(("ends", "tells"), [((2,), True), ((1, 2), True), ((2,), False)])
async def test_a_node_that_cheats_is_brought_to_court_by_who_rejected_it_and_slashed(
    anvil: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: tuple[int, ...], tells: bool
) -> None:
    if not tells:
        # Its verifiers ask it, over a channel of their own.
        monkeypatch.setattr("troth.scheduler.checks.running.inform", told_nothing)
    async with court_network(anvil, tmp_path, ends=ends) as network, blocks(network):
        for engine in network.engines.values():
            engine.cheats = True
        asked = await network.scene.send(network.scene.asked())
        assert [line["type"] for line in asked.lines][-1] == "draw", asked.lines
        history = network.scheduler.orders.context.store.get(asked.order_id)
        node = history.admitted.nodes[0]
        before = network.follower.state.pot(PotKind.STAKE, node)
        # The client shows its secret, and then does nothing more.
        await network.scene.show(asked)
        said = {verifier: one.message.opinion for (segment, verifier), one in history.verdicts.items() if segment == 0}
        assert set(said.values()) == {Opinion.REJECT}
        await eventually(lambda: case_of(network, asked.order_id) is not None)
        assert case_of(network, asked.order_id).state.opener in said
        await eventually(lambda: case_of(network, asked.order_id).outcome is not None, 240)
        assert case_of(network, asked.order_id).outcome is Outcome.CONVICTED
        after = network.follower.state.pot(PotKind.STAKE, node)
        assert before - after >= network.stage.execution_class.penalty


async def test_an_order_awaits_a_connection_that_is_about_to_be_tried_again(anvil: Any, tmp_path: Path) -> None:
    async with court_network(anvil, tmp_path, nodes=10) as network, blocks(network):
        for channel in network.channels():
            assert channel._socket is not None
            # Until all have failed, however long that takes; then they are tried again soon.
            channel._not_before = time.monotonic() + 600.0
            await channel._socket.close()
        peers = network.scheduler.orders.context.peers
        await eventually(lambda: all(peers.failed_lately(node) for node in network.nodes))
        for channel in network.channels():
            channel._not_before = time.monotonic() + 3.0
        assert not network.connected()
        asked = await network.scene.send(network.scene.asked())
        assert [line["type"] for line in asked.lines][-1] == "draw", asked.lines


async def told_nothing(*_arguments: Any) -> None:
    """A scheduler that keeps verdicts to itself until it is asked."""
