"""How long a client waits until its chain node shows a block that the scheduler names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.toy_market import World
from support.toy_tab_stage import toy_stage
from unit.test_tabs_asking import asked, ended

from troth.chain import waiting
from troth.client.gateway.failures import refusal_of
from troth.client.orders.failing import OrderStale
from troth.client.orders.session import SEEN_SECONDS, PayerSession
from troth.client.orders.updates import OrderOutcome
from troth.protocol.market.state import State


@pytest.mark.parametrize(
    ("slow", "limit", "seconds"),
    [("", "60", SEEN_SECONDS), ("waiting for the chain node", "20", 60.0), ("waiting for the chain node", "5", 30.0)],
)
async def test_a_slow_chain_node_is_given_three_of_its_answers(
    slow: str, limit: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its newest block, headers and logs each take one; the answer was lost to its payer after half a minute."""
    waited: list[float] = []

    async def reach(_block: int, timeout: float) -> None:
        waited.append(timeout)

    monkeypatch.setenv(waiting.LIMIT_VARIABLE, limit)
    monkeypatch.setattr("troth.client.orders.session.slowness", lambda: slow)
    session: Any = SimpleNamespace(block=5, follower=SimpleNamespace(reach=reach))
    await PayerSession.seen(session, 5)
    assert waited == []
    await PayerSession.seen(session, 9)
    assert waited == [seconds]


OLD = {"code": "old_block", "status": 409, "message": "The order's block is 120 blocks old, and may be 100"}


@pytest.mark.parametrize("prompt_again", [True, False])
async def test_an_order_with_an_old_block_is_followed_by_one_with_the_newest(
    prompt_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the chain node stays too slow, its client is told that, and that the order is free."""
    async with toy_stage(tmp_path) as stage:
        stage.scheduler.refusing, looked = OLD, []

        async def caught_up(world: World) -> State:
            looked.append(world.block)
            world.block += 1
            if prompt_again:
                stage.scheduler.refusing = None
            return world.state

        monkeypatch.setattr(World, "catch_up", caught_up)
        if prompt_again:
            assert ended(await asked(stage)).outcome is OrderOutcome.CHECKED
            placed = stage.scheduler.orders[stage.scheduler.served[0]]
            assert placed.order.reference_block == looked[0]
            return
        with pytest.raises(OrderStale, match="120 blocks old") as refused:
            await asked(stage)
        assert "name another with --rpc" in refused.value.remedy
        assert [entry.paid for entry in stage.session.journal.all()] == [0, 0, 0]
        told = refusal_of(refused.value)
        assert (told.http_status, told.code) == (503, "chain_behind")
        assert (told.troth["hop"], told.troth["charged"]) == ("chain", False)
