"""A node on tabs changes its slice on real contracts: by its operator's key alone, with asks, and as a pool says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.order_node import Node
from support.tabs_stage import ASK, PARAMETERS, TabsStage, following, tabs_stage
from support.waiting import eventually

from troth.chain.errors import ChainRejected
from troth.node.orders.ground import FollowedGround
from troth.node.orders.hosting import SliceHosting
from troth.node.orders.moving import Moving
from troth.node.pool.agreement import MOST_GROUPS, AutoLimits
from troth.node.pool.contacts import MarketContacts
from troth.node.pool.resident import Lent, Resident
from troth.node.registration.asking import asks_of
from troth.protocol.market.parts import Part
from troth.protocol.market.types import Ask
from troth.protocol.sizes import ModelSizes
from troth.protocol.types import Segment
from troth.protocol.wire_reports import HostingPart, SpanPart
from troth.scheduler.pool.sides import MarketSides

pytestmark = [pytest.mark.chain, pytest.mark.slow]

WHOLE, LOWER, UPPER = Segment(0, 2), Segment(0, 1), Segment(1, 2)
HALF = Ask(ASK.prompt // 2, ASK.cached // 2, ASK.written // 2)
SIZES = ModelSizes(layer=100, key_value=1, embedding=10, head=10, tied=False)


@dataclass
class Mover:
    """A registered node whose engine and chain are followed; no scheduler asks it for anything."""

    stage: TabsStage
    follower: Any
    node: Node
    hosting: SliceHosting
    moving: Moving

    @property
    def asks(self) -> dict[Segment, Ask]:
        return asks_of(self.follower.state, self.node.address, 2)

    def members(self, segment: Segment, block: int) -> list[str]:
        state = self.follower.state
        group = state.group_of(self.node.address, segment)
        return [entry.operator for entry in state.members_at(group, block)]

    def side(self) -> Any:
        return MarketSides(lambda: (self.follower.state, self.follower.block)).side(self.stage.class_id)


@asynccontextmanager
async def mover(anvil: Any, folder: Path) -> AsyncIterator[Mover]:
    async with (
        tabs_stage(anvil, nodes=1, tabs=False) as stage,
        following(stage) as follower,
    ):
        key = stage.nodes[0]
        anvil.fund(key)
        ground: Any = FollowedGround(follower, stage.market.chain.chain_id)
        node = Node(key.secret, folder, ground, stage.class_id, domain=stage.market.domain)
        hosting = SliceHosting(node.context, node.service)
        await hosting.step()
        yield Mover(stage, follower, node, hosting, Moving(node.context, hosting, stage.market, key))


async def test_a_move_on_chain(anvil: Any, tmp_path: Path) -> None:
    async with mover(anvil, tmp_path) as made:
        engine, me = made.node.engine, made.node.address
        for hosted, segments, refused in (
            (Segment(1, 3), [Segment(1, 3)], "InvalidSlice"),
            (UPPER, [LOWER], "SegmentOutsideSlice"),
            (UPPER, [UPPER, UPPER], "SegmentTwice"),
        ):
            with pytest.raises(ChainRejected, match=refused):
                await made.moving.move(hosted, segments)
        assert engine.slice == WHOLE
        assert made.asks == {WHOLE: ASK}
        await made.moving.move(UPPER, [UPPER])
        assert engine.slice == UPPER
        assert made.asks == {UPPER: HALF}
        party = made.follower.state.parties[me]
        assert (party.hosted, [hosted for _, hosted in party.slices]) == (UPPER, [WHOLE, UPPER])
        block = party.slices[-1][0]
        assert [made.members(one, block - 1) for one in (WHOLE, UPPER)] == [[me], []]
        assert [made.members(one, block) for one in (WHOLE, UPPER)] == [[], [me]]
        with pytest.raises(ChainRejected, match="SliceChangedLately"):
            await made.moving.move(LOWER, [LOWER])
        assert engine.slice == UPPER


async def test_the_scheduler_knows_for_how_long_the_chain_keeps_a_slice(anvil: Any, tmp_path: Path) -> None:
    async with mover(anvil, tmp_path) as made:
        me, stage = made.node.address, made.stage
        assert made.side().kept == frozenset()
        await made.moving.move(WHOLE, [LOWER, UPPER])
        assert made.asks == {LOWER: HALF, UPPER: HALF}
        party, age = made.follower.state.parties[me], PARAMETERS.reference_age
        changed = party.slices[-1][0]
        assert (
            made.follower.state.parties[me].kept_until(PARAMETERS.reference_age) == changed + PARAMETERS.reference_age
        )
        assert made.side().kept == {me}
        anvil.mine(changed + age - 2 - made.follower.block)
        await made.follower.catch_up()
        assert made.side().kept == {me}, "in the next block it may not change"
        words = (me, 1, 2, (UPPER,), (HALF,))
        with pytest.raises(ChainRejected, match="SliceChangedLately"):
            await stage.send(stage.nodes[0], Part.REGISTRY, "changeSlice", *words)
        anvil.mine(1)
        await made.follower.catch_up()
        assert made.side().kept == frozenset(), "in the next block it may"
        await stage.send(stage.nodes[0], Part.REGISTRY, "changeSlice", *words)


async def test_an_order_of_its_scheduler_is_carried_out_and_an_insane_one_is_not(anvil: Any, tmp_path: Path) -> None:
    async with mover(anvil, tmp_path) as made:
        agreement = AutoLimits(made.stage.scheduler.address, 120, 0.0, MOST_GROUPS)
        contacts = MarketContacts(lambda: made.follower.state)
        resident = Resident(
            made.node.context, Lent(120, 10), "cpu", SIZES,
            contacts=contacts, sessions=lambda: 0, agreement=agreement, move=made.moving.move,
        )  # fmt: skip
        assert [one.operator for one in contacts.schedulers()] == [made.stage.scheduler.address]
        assert resident.draft(made.stage.scheduler.address).movable
        assert not resident.draft(made.stage.client.address).movable
        number, scheduler = 7, made.stage.scheduler.address
        upper = HostingPart(number, 1, 2, (SpanPart(1, 2),))
        for sender, order in (
            (made.stage.client.address, upper),
            (scheduler, HostingPart(number, 0, 2, (SpanPart(0, 2),))),
            (scheduler, HostingPart(number, 1, 3, (SpanPart(1, 2),))),
            (scheduler, HostingPart(number, 1, 2, (SpanPart(0, 2),))),
            (scheduler, HostingPart(number, 1, 2, (SpanPart(1, 2),) * 3)),
        ):
            resident.on_order(sender, order)
            assert resident._moving is None, order
        resident.on_order(scheduler, upper)
        await eventually(lambda: made.node.engine.slice == UPPER and resident._moving is None)
        assert made.asks == {UPPER: HALF}
        report = resident.draft(scheduler)
        assert (report.first, report.end, report.cache_tokens) == (1, 2, 10)
        resident.on_order(scheduler, upper)
        assert resident._moving is None, "not newer than the last one"


async def test_a_scheduler_that_lost_its_stake_is_reported_to_no_more(anvil: Any, tmp_path: Path) -> None:
    async with mover(anvil, tmp_path) as made:
        state, me = made.follower.state, made.node.address
        assert [one.operator for one in MarketContacts(lambda: state).nodes([me, made.stage.client.address])] == [me]
        poor = replace(state, pots=type(state.pots)())
        assert not MarketContacts(lambda: poor).schedulers()
        await made.stage.send(made.stage.scheduler, Part.REGISTRY, "deregister", made.stage.scheduler.address)
        await made.follower.catch_up()
        assert not MarketContacts(lambda: made.follower.state).schedulers()
