"""Random operations on a real deployment; after them, the folded state must equal what every getter says."""

from __future__ import annotations

import gzip
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.market_world import (
    MONEY,
    PARAMETERS,
    PARTIES,
    World,
    build_world,
    claim,
    class_of,
    object_to,
    open_tab,
    post_log,
    redeem,
    redeem_many,
    register_node,
    set_ask,
)

from troth.audit import running
from troth.audit.checks import NUMBERS
from troth.audit.errors import BundleRefused
from troth.audit.evidence.bundle import write_bundle
from troth.audit.report import ExitCode
from troth.chain.deployment import deploy_market
from troth.chain.errors import ChainRejected
from troth.protocol.market.addresses import contracts_of
from troth.protocol.market.types import Parameters

pytestmark = [pytest.mark.chain, pytest.mark.slow]

OPERATIONS = 120


@pytest.fixture
async def market_world(request: pytest.FixtureRequest, anvil: Any) -> AsyncIterator[World]:
    seed = getattr(request, "param", 0)
    anvil.mine(3)
    market, _ = await deploy_market(anvil.url, PARAMETERS, anvil.keys[0])
    async with market:
        world = World(market, anvil, random.Random(seed), class_of())
        await world.follow()
        await build_world(world)
        yield world


@pytest.mark.parametrize("market_world", [1, 2, 3], indirect=True)
async def test_fold_equals_getters_after_random_operations(market_world: World) -> None:
    world = market_world
    for number in range(OPERATIONS):
        family = world.random.choices([PARTIES, MONEY, (post_log,)], weights=[4, 6, 1])[0]
        await world.random.choice(family)(world)
        if number % 30 == 0:
            await world.compare()
    asked = await world.compare()
    assert asked > 50
    assert sum(world.done.values()) > OPERATIONS // 3, (world.done, world.refused)


@pytest.mark.parametrize("market_world", [4], indirect=True)
async def test_every_operation_keeps_fold_and_getters_equal(market_world: World) -> None:
    """Until each has been done at least once, so that none is left to chance."""
    world = market_world
    operations = (*dict.fromkeys((*PARTIES, *MONEY, post_log)),)
    wanted = {
        *(f"registry.{name}" for name in ("topUp", "setAsk", "changeSlice", "setEndpoint", "setPayout", "deregister")),
        *(f"bank.{name}" for name in ("openTab", "topUp", "redeem", "redeemMany", "close", "finishClosing", "claim")),
        *(f"bank.{name}" for name in ("object", "answer", "strike", "settle", "credit", "withdraw")),
        *("registry.withdrawStake", "log.post"),
    }
    for _ in range(25):
        if wanted <= set(world.done):
            break
        for operation in operations:
            await operation(world)
        await world.compare()
    assert wanted <= set(world.done), (wanted - set(world.done), world.refused)


async def test_addresses_follow_from_factory_and_parameters_alone(market_world: World) -> None:
    market = market_world.market
    deployed = market_world.state.deployed
    assert deployed is not None
    assert deployed.parameters == PARAMETERS
    assert deployed.contracts == contracts_of(market.place.factory, PARAMETERS) == market.contracts


async def test_parameters_that_do_not_hold_together_are_refused_with_their_rule(anvil: Any) -> None:
    anvil.mine(3)
    broken = Parameters(**{name: getattr(PARAMETERS, name) for name in Parameters.__slots__} | {"close_delay": 1})
    with pytest.raises(ChainRejected) as caught:
        await deploy_market(anvil.url, broken, anvil.keys[0])
    assert caught.value.name == "InvalidParameters"
    assert "rule" in caught.value.error.remedy


async def test_a_proven_header_is_the_blocks_own(market_world: World) -> None:
    market = market_world.market
    newest = await market.header()
    found = await market.chain.block(newest.number)
    assert found is not None
    assert (found.hash, found.parent_hash, found.timestamp) == (newest.hash, newest.parent_hash, newest.timestamp)
    assert (await market.headers([newest.number]))[newest.number].raw == newest.raw


@pytest.mark.parametrize("market_world", [5], indirect=True)
async def test_an_audit_of_the_chain_and_of_its_bundle_is_clean(market_world: World, tmp_path: Path) -> None:
    world = market_world
    operations = (open_tab, open_tab, redeem, redeem_many, claim, object_to, register_node, set_ask, post_log, claim)
    for operation in operations:
        await operation(world)
    place, file = world.market.place, tmp_path / "bundle"
    found = await running.find_place(world.anvil.url, place.factory, None, 0)
    assert found.contracts == place.contracts
    reading = await running.read_chain(world.anvil.url, found, start=0, last=None)
    report = running.audit_market(reading, NUMBERS)
    assert report.exit_code is ExitCode.CLEAN, report.findings
    assert {check.number for check in report.checks} >= {"M1", "M5", "M18"}
    content = write_bundle(file, reading.subject.evidence, {})
    again, same = running.read_file(file)
    assert same == content
    assert again.subject.evidence == replace(reading.subject.evidence, answers=(), holdings=None)
    assert running.audit_market(again, NUMBERS).exit_code is ExitCode.CLEAN
    damaged = gzip.decompress(file.read_bytes()).replace(b'"type":"log"', b'"type":"lag"', 1)
    file.write_bytes(gzip.compress(damaged))
    with pytest.raises(BundleRefused):
        running.read_file(file)
