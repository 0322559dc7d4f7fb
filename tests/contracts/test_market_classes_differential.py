"""Which classes a deployment refuses because cheating could pay: the deployed Classes against the Python rule."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.market_world import DESCRIPTOR, PARAMETERS, World, class_of

from troth.chain.deployment import deploy_market
from troth.protocol.market import economy
from troth.protocol.market.errors import WeakEconomy
from troth.protocol.market.parts import Part
from troth.protocol.market.types import ExecutionClass

pytestmark = [pytest.mark.chain, pytest.mark.slow]

MONEY = {"PenaltyTooLow", "PenaltyOutOfRange", "RewardTooLow", "SeatTooLow"}
"""Refusals of what the Python rule is about; the others are of form."""
STAKE = 10**9
# Gas is so dear that bringing a rejection pays only with a large penalty.
PLACE = replace(PARAMETERS, scheduler_stake=STAKE, gas_price=10**8)


def _near(source: random.Random) -> Iterator[ExecutionClass]:
    """Classes whose penalty or seat lies at a limit, and one below and above it."""
    plain = replace(
        class_of(),
        fee_cap=source.choice((10**3, 10**6, 10**8)),
        honest_share=source.choice((6_000, 9_000, 10_000)),
        least_check_rate=source.choice((50_000, 500_000, 1_000_000)),
        reviewers=source.choice((3, 5, 15)),
    )
    found = economy.detection_of(plain)
    convicting, gas = economy.conviction(plain.honest_share, plain.reviewers), economy.case_gas_of(plain)
    limits = (
        economy.least_penalty(plain.fee_cap, found),
        economy.least_rewarding(convicting, gas, PLACE.gas_price),
        economy.FEES_COVERED * plain.fee_cap,
        STAKE,
    )
    for penalty in sorted({limit + step for limit in limits for step in (-1, 0, 1)} | {0}):
        if penalty < 0:
            continue
        seat = economy.least_seat(penalty, gas, PLACE.gas_price)
        for less in (0, 1):
            yield replace(plain, penalty=penalty, seat=seat - less, name=f"{penalty} {less} {source.random()}")


async def test_the_same_classes_are_refused(anvil: Any) -> None:
    anvil.mine(3)
    market, _ = await deploy_market(anvil.url, PLACE, anvil.keys[0])
    seen: Counter[str] = Counter()
    async with market:
        world = World(market, anvil, random.Random(5), class_of())
        assert await world.run(world.owner, Part.CLASSES, "registerModel", DESCRIPTOR)
        for _ in range(6):
            for made in _near(world.random):
                world.refused.clear()
                taken = await world.run(world.owner, Part.CLASSES, "registerClass", made)
                refusals = {name.removeprefix("registerClass: ") for name in world.refused}
                assert refusals <= MONEY, refusals
                try:
                    economy.require_sound(made, gas_price=PLACE.gas_price, scheduler_stake=PLACE.scheduler_stake)
                except WeakEconomy:
                    assert not taken
                else:
                    assert taken, refusals
                seen.update(refusals or {"taken"})
    assert set(seen) == MONEY | {"taken"}, seen
