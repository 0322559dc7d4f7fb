"""Placement in the running network: nodes report, are told what to host, register it, serve what follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.pool_stage import SHAPE, Desk, desk
from support.real_nodes import RealNode, real_stage
from support.scheduler_stage import Stage
from support.waiting import eventually

from troth.node.pool.agreement import Agreement
from troth.node.pool.resident import Lent, Resident
from troth.protocol.calls import change_slice, set_endpoint
from troth.protocol.sizes import ModelSizes
from troth.protocol.types import Address, Hash32, Segment, pack_ends
from troth.scheduler.errors import OtherSplit

pytestmark = [pytest.mark.chain, pytest.mark.slow]

SIZES = ModelSizes(SHAPE.layer_bytes, 0, 0, 0, tied=False)
PATIENCE = 90.0


def resident_of(running: Desk, node: RealNode, layers: int, scheduler: Address) -> Resident:
    """The node's side, which registers what it is told and has every layer in memory already."""
    chain = running.scene.chain

    async def move(hosted: Segment, segments: Sequence[Segment]) -> None:
        await chain.execute(change_slice(node.address, hosted, segments), node.key)

    memory = layers * SHAPE.layer_bytes
    return Resident(
        node.bench, Lent(memory, 0), "cpu", SIZES,
        state=lambda: running.scheduler.desk.ledger.state, sessions=lambda: 0,
        agreement=Agreement(scheduler, memory, 0.0), move=move,
    )  # fmt: skip


@asynccontextmanager
async def reporting(running: Desk, *, layers: int, obey: Address | None = None) -> AsyncIterator[dict[str, Any]]:
    """Every node of the stage in the pool, each with room for so many layers; the running reports by address."""
    scene = running.scene
    address = scene.scheduler.address
    endpoint = set_endpoint(address, running.endpoint, Hash32(running.identity.spki_sha256))
    await scene.chain.execute(endpoint, scene.owner)
    residents = {node.address: resident_of(running, node, layers, obey or address) for node in scene.nodes}
    jobs = {name: asyncio.create_task(resident.run()) for name, resident in residents.items()}
    try:
        yield {"residents": residents, "jobs": jobs}
    finally:
        for job in jobs.values():
            job.cancel()
        await asyncio.gather(*jobs.values(), return_exceptions=True)
        for resident in residents.values():
            await resident.leave()


async def answered(running: Desk, ends: tuple[int, ...]) -> dict[str, Any]:
    """The last line of an order for these ends."""
    order = await running.scene.order(max_tokens=4, ends=pack_ends(ends), max_fee=10**18)
    lifecycle = await running.scheduler.submit(order)
    return [line async for line in lifecycle.stream.lines()][-1]


def slices(running: Desk) -> list[tuple[int, int]]:
    nodes = running.scheduler.desk.ledger.state.nodes
    return sorted((nodes[node.address].slice.first, nodes[node.address].slice.end) for node in running.scene.nodes)


def sequences(running: Desk) -> list[int]:
    """Of the last report of every node."""
    reports = [running.pool.report_of(node.address) for node in running.scene.nodes]
    return [-1 if report is None else report.sequence for report in reports]


def members(running: Desk, segment: Segment) -> int:
    """Of a segment's group, as orders of now may refer to it."""
    _, side = running.scheduler.pools.pools()[running.scene.class_id]
    return len(side.groups.get(segment, ()))


async def mined(scene: Stage, condition: Any) -> None:
    """Blocks come while a condition is awaited, as they do on any chain."""

    async def mine() -> None:
        while True:
            scene.anvil.mine()
            await asyncio.sleep(0.2)

    mining = asyncio.create_task(mine())
    try:
        await eventually(condition, PATIENCE)
    finally:
        mining.cancel()


async def test_ends_follow_the_placement_and_outdated_orders_are_told_so(deployed: Any, tmp_path: Path) -> None:
    """Six nodes with room for the whole model, registered for halves of it: one segment is cheaper than two."""
    async with real_stage(deployed, tmp_path, nodes=6) as scene, desk(scene, placing=True) as running:
        assert (await answered(running, (1, 2)))["outcome"] == "accepted"
        async with reporting(running, layers=2):
            await mined(scene, lambda: running.pool.offered == (2,))
            with pytest.raises(OtherSplit) as refused:
                await answered(running, (1, 2))
            assert refused.value.ends == (2,)
            assert (await answered(running, (2,)))["outcome"] == "accepted"


async def test_a_layer_that_nobody_hosts_is_covered_by_nodes_that_move(deployed: Any, tmp_path: Path) -> None:
    """Ten nodes with room for one layer each, all registered for the first."""
    async with (
        real_stage(deployed, tmp_path, nodes=10, hosted=lambda _: Segment(0, 1)) as scene,
        desk(scene, placing=True) as running,
        reporting(running, layers=1),
    ):
        await mined(scene, lambda: slices(running) == [(0, 1)] * 5 + [(1, 2)] * 5)
        # A node is in its new groups from the block after its move on.
        await mined(scene, lambda: members(running, Segment(1, 2)) == 5 and running.pool.offered == (1, 2))
        assert (await answered(running, (1, 2)))["outcome"] == "accepted"
        moves = running.pool.moves
        assert moves == 5
        # Nobody flaps: once all is well, more reports move nobody.
        for _ in range(3):
            before = sequences(running)
            await eventually(
                lambda seen=before: all(now > then for now, then in zip(sequences(running), seen, strict=True))
            )
        assert running.pool.decision.reason == ""
        assert running.pool.moves == moves


async def test_nodes_obey_only_the_scheduler_that_their_operators_named(deployed: Any, tmp_path: Path) -> None:
    async with (
        real_stage(deployed, tmp_path, nodes=6, hosted=lambda _: Segment(0, 1)) as scene,
        desk(scene, placing=True) as running,
        reporting(running, layers=2, obey=Address("0x" + "11" * 20)),
    ):
        await mined(scene, lambda: len(running.pool.reporting()) == 6)
        side = running.scheduler.pools.pools()[scene.class_id][1]
        assert not any(member.movable for member in running.pool.members(side))
        running.pool.consider(side)
        assert slices(running) == [(0, 1)] * 6


async def test_a_node_that_leaves_is_forgotten_at_once_and_a_silent_one_when_its_report_expires(
    deployed: Any, tmp_path: Path
) -> None:
    async with (
        real_stage(deployed, tmp_path, nodes=6) as scene,
        desk(scene, placing=True) as running,
        reporting(running, layers=2) as found,
    ):
        await mined(scene, lambda: len(running.pool.reporting()) == 6)
        leaving, silent = (node.address for node in scene.nodes[:2])
        found["jobs"][leaving].cancel()
        await asyncio.gather(found["jobs"][leaving], return_exceptions=True)
        await found["residents"][leaving].leave()
        assert leaving not in running.pool.reporting()
        found["jobs"][silent].cancel()
        await mined(scene, lambda: silent not in running.pool.reporting())
        assert len(running.pool.reporting()) == 4
