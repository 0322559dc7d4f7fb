"""Whatever parties call back while they are paid, in coin or token, everybody can follow the chain.

An event that cannot follow what was folded ends every follower, so that one payer could stop a whole market.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from support.calling_back import Play, create, creation_of, play
from support.market_world import PARAMETERS, World, build_world, class_of
from support.token_asset import TokenAsset

from troth.chain.deployment import deploy_market

pytestmark = [pytest.mark.chain, pytest.mark.slow]

STEPS = 400


@asynccontextmanager
async def played(anvil: Any, seed: int, token: TokenAsset | None = None) -> AsyncIterator[Play]:
    """A market with two parties that call back."""
    anvil.mine(3)
    parameters = PARAMETERS if token is None else replace(PARAMETERS, asset=token.address)
    market, _ = await deploy_market(anvil.url, parameters, anvil.keys[0])
    async with market:
        world = World(market, anvil, random.Random(seed), class_of(), coin=token is None)
        if token is not None:
            await token.provide(world.owner, market.contracts.bank)
        await build_world(world)
        yield await play(world, token)


async def play_all(stage: Play) -> tuple[set[str], set[str]]:
    """Names of what parties did, and of what they called back, once everything was followed."""
    for _ in range(STEPS):
        await stage.step()
    await stage.compare()
    done, made = stage.count("done"), stage.count("made")
    return {name for name in done if done[name]}, {name for name in made if made[name]}


async def test_what_payers_call_back_is_followed(anvil: Any) -> None:
    async with played(anvil, 1) as stage:
        done, made = await play_all(stage)
        assert {"finishClosing", "withdraw"} <= done
        assert {"openTab", "topUp", "close", "redeem", "redeemMany", "credit", "registerNode"} <= made


async def test_what_holders_of_a_token_call_back_is_followed(anvil: Any) -> None:
    """Also while they pay: the token tells them of each transfer. What moves tokens is refused meanwhile."""
    token = TokenAsset(anvil, await create(anvil, creation_of("HookToken")))
    async with played(anvil, 3, token) as stage:
        done, made = await play_all(stage)
        assert {"finishClosing", "withdraw", "openTab", "topUp", "credit", "registerNode"} <= done
        assert {"close", "redeem", "redeemMany"} <= made
        assert not {"openTab", "topUp", "credit", "registerNode", "withdraw"} & made
