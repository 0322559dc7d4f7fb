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
from support.tickets_stage import Bought, tickets_stage
from support.token_asset import TokenAsset

from troth.chain.deployment import deploy_market
from troth.protocol.hashing import keccak256
from troth.protocol.market.calls import PartCall
from troth.protocol.market.messages import tab_id
from troth.protocol.market.types import Tab
from troth.protocol.tickets import messages
from troth.protocol.tickets.purchases import Purchase, points_of, root_of, ticket_secrets

pytestmark = [pytest.mark.chain, pytest.mark.slow]


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


async def play_all(stage: Play, steps: int) -> tuple[set[str], set[str]]:
    """Names of what parties did, and of what they called back, once everything was followed."""
    for _ in range(steps):
        await stage.step()
    await stage.compare()
    done, made = stage.count("done"), stage.count("made")
    return {name for name in done if done[name]}, {name for name in made if made[name]}


async def test_what_payers_call_back_is_followed(anvil: Any) -> None:
    async with played(anvil, 1) as stage:
        done, made = await play_all(stage, 400)
        assert {"finishClosing", "withdraw"} <= done
        assert {"openTab", "topUp", "close", "redeem", "redeemMany", "credit", "registerNode"} <= made


async def test_what_is_called_back_while_tickets_are_paid_out_is_followed(anvil: Any) -> None:
    """Their payees are paid fees before tabs are opened, and their buyers what was never spent."""
    async with played(anvil, 5) as stage:
        world, party = stage.world, stage.parties[0]
        tickets = await tickets_stage(anvil.url, anvil.keys[4], anvil.mine, market=world.market)
        contract, tab_key = tickets.chain.contract, world.key("tickets' tab")
        secrets = ticket_secrets(keccak256(b"tickets that call back"), 4)
        lost = Bought(Purchase(party, 0, 0, 4, root_of(points_of(secrets))), secrets)
        buying = messages.buy(lost.purchase, 4 * tickets.rules.prices[0])
        await stage.act(party, PartCall(contract, buying), stage.tabs[0])
        for number in range(6):
            bought = await tickets.buy(1, 2)
            spending = await tickets.spending(bought, [0, 1], party, tab_key, 10**9)
            call = messages.spend([tickets.key_of(bought.purchase)], [spending])
            await stage.act(party, PartCall(contract, call), stage.tabs[number])
        await tickets.to_epoch(2)
        for place in range(4):
            call = messages.refund(lost.purchase, [lost.lost(place)])
            await stage.act(party, PartCall(contract, call), stage.tabs[place])
        await stage.compare()
        done, made = stage.count("done"), stage.count("made")
        assert (done["buy"], done["spend"], done["refund"]) == (1, 6, 4)
        assert sum(made.values()) > 10
        payer = await tickets.chain.read(messages.payer_of(tab_key.address))
        assert world.state.tab_state(tab_id(Tab(payer, party, tab_key.address))).balance > 0
        await tickets.chain.close()


async def test_what_holders_of_a_token_call_back_is_followed(anvil: Any) -> None:
    """Also while they pay: the token tells them of each transfer. What moves tokens is refused meanwhile."""
    token = TokenAsset(anvil, await create(anvil, creation_of("HookToken")))
    async with played(anvil, 3, token) as stage:
        done, made = await play_all(stage, 250)
        assert {"finishClosing", "withdraw", "openTab", "topUp", "credit", "registerNode"} <= done
        assert {"close", "redeem", "redeemMany"} <= made
        assert not {"openTab", "topUp", "credit", "registerNode", "withdraw"} & made
