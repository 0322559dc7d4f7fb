"""Draws from groups with a history of their own: the deployed Registry against the Python rule, hints included."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from support.market_world import PARAMETERS, PARTIES, World, ask, build_world, class_of, register_node

from troth.chain.deployment import deploy_market
from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import group_id
from troth.protocol.market import draws
from troth.protocol.market.calls import view
from troth.protocol.market.errors import InvalidDrawRequest
from troth.protocol.market.parts import Part
from troth.protocol.market.types import Ask, DrawRequest
from troth.protocol.types import Address, Hash32, Segment

pytestmark = [pytest.mark.chain, pytest.mark.slow]

OPERATIONS, DRAWS = 80, 120
OPERATED = (*PARTIES, register_node, register_node)


@dataclass
class OwnedWorld(World):
    """Parties of several owners, so that a draw may leave some of them out."""

    owning: int = 3

    @property
    def owner(self) -> Key:
        return self.anvil.keys[self.owning]  # type: ignore[no-any-return]


@pytest.fixture
async def drawn_world(request: pytest.FixtureRequest, anvil: Any) -> AsyncIterator[OwnedWorld]:
    anvil.mine(3)
    market, _ = await deploy_market(anvil.url, PARAMETERS, anvil.keys[0])
    async with market:
        # Of so few seats of so many that some draws end before they have found theirs.
        rare = replace(class_of(), seat_cap=32 if request.param == 3 else 4)
        world = OwnedWorld(market, anvil, random.Random(request.param), rare)
        await world.follow()
        await build_world(world)
        yield world


def _request(world: World, first_block: int) -> DrawRequest:
    """Of inferencers, or of verifiers and reviewers, at a past block, some owners and operators' owners left out."""
    source = world.random
    span = source.choice((Segment(0, 1), Segment(0, 2), Segment(1, 2)))
    seasoned, distinct = source.choice(((False, True), (True, False), (False, False), (True, True)))
    owners = sorted({party.owner for party in world.state.parties.values()})
    return DrawRequest(
        execution_class=world.class_id,
        first=span.first,
        end=span.end,
        block_number=source.randint(first_block, world.followed - 1),
        seed=Hash32(keccak256(source.randbytes(8))),
        count=source.randint(1, 7),
        seasoned=seasoned,
        distinct=distinct,
        excluded=tuple(source.sample(owners, source.choice((0, 0, 1)))),
        bound=source.choice((Ask(2**64 - 1, 2**64 - 1, 2**64 - 1), Ask(1000, 1000, 1000), ask(world))),
    )


async def _by_contract(world: World, request: DrawRequest) -> tuple[Address, ...] | str:
    """Who the Registry draws by the hints that it is given, or the name of its refusal."""
    asked = view(world.market.contracts, Part.REGISTRY, "draw", request, returns=tuple[Address, ...])
    try:
        answer: tuple[Address, ...] = await world.market.read(asked)
    except ChainRejected as error:
        return error.name
    return tuple(answer)


@pytest.mark.parametrize("drawn_world", [1, 2, 3], indirect=True)
async def test_draws_and_their_hints_are_equal(drawn_world: OwnedWorld) -> None:
    world = drawn_world
    first_block = world.followed
    for number in range(6):
        world.owning = number % 3 + 1
        await register_node(world)
    for _ in range(OPERATIONS):
        world.owning = world.random.randint(1, 3)
        await world.random.choice(OPERATED)(world)
    world.anvil.mine(2)
    await world.follow()
    seen: Counter[str] = Counter()
    for _ in range(DRAWS):
        request = _request(world, first_block)
        group = world.state.group(group_id(world.class_id, Segment(request.first, request.end)))
        try:
            limits = {"seat_cap": world.execution_class.seat_cap, "seasoning": PARAMETERS.seasoning}
            expected = draws.draw(request, group, **limits)
        except InvalidDrawRequest:
            refused = await _by_contract(world, replace(request, hints=bytes(4096)))
            assert isinstance(refused, str)
            with pytest.raises(ChainRejected):
                await world.market.drawn(request)
            seen["refused"] += 1
            continue
        assert await _by_contract(world, replace(request, hints=expected.hints)) == expected.operators
        assert await world.market.drawn(request) == (expected.operators, expected.hints)
        if expected.hints:
            assert isinstance(await _by_contract(world, request), str)
            seen["by hints"] += 1
        if any(group.owners[entry.operator] in request.excluded for entry in group.members_at(request.block_number)):
            seen["owners left out"] += 1
        seen["drawn"] += 1
    assert min(seen[name] for name in ("refused", "by hints", "owners left out", "drawn")) > 3, seen
