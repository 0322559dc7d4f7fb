"""A chain node that turns bad while it is followed: that is said once, nothing is forgotten, and following goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from support.bad_rpc import GATEWAY, HALF, NORMAL, OTHER, PAGE, before
from support.waiting import eventually

from troth.chain import duty
from troth.chain import follower as module
from troth.chain.market import Market
from troth.chain.market_follower import MarketFollower
from troth.chain.waiting import LIMIT_VARIABLE

pytestmark = [pytest.mark.chain, pytest.mark.slow]

SAID = {
    PAGE: "is no JSON",
    GATEWAY: "with HTTP status 502",
    OTHER: "is on chain 77, not 31337",
    HALF: "did not answer eth_",
}


async def test_whatever_a_node_turns_to_is_said_once_and_nothing_is_forgotten(
    deployed: Any,
    start_anvil: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, "4")
    monkeypatch.setattr(module, "LONGEST_BACKOFF", 0.2)
    other = start_anvil()
    other.rpc("anvil_setChainId", 77)
    other.mine(500)
    async with (
        before(deployed.anvil.url, other.url) as node,
        await Market.connect(node.url, deployed.market.place) as market,
        MarketFollower(market, poll_interval=0.05) as follower,
    ):
        await follower.catch_up()
        for mode, words in SAID.items():
            caplog.clear()
            held, block = follower.state.held(), follower.block
            with caplog.at_level(logging.INFO, logger=duty.__name__):
                node.mode = mode
                await eventually(lambda: follower.failure is not None)
                first = follower.failure
                await eventually(lambda first=first: follower.failure is not first)
                assert (follower.state.held(), follower.block) == (held, block)
                node.mode = NORMAL
                deployed.anvil.mine(2)
                await follower.reach(block + 2, timeout=60)
                await eventually(lambda: follower.failure is None)
            said = [one.getMessage() for one in caplog.records if one.name == duty.__name__]
            assert len(said) == 2, f"{mode}: {said}"
            assert words in said[0]
            assert said[1] == "reading the chain's events goes on"
