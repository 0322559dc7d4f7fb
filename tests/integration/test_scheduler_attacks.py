"""Nodes that attack their scheduler: it is not slashed, the task is not held up, and the culprit is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.scheduler_stage import Stage, stage
from support.toy_node import ToyNode
from support.waiting import SECONDS, eventually

from troth.protocol.calls import reveal
from troth.protocol.contract_types import Opening
from troth.protocol.settlement import Outcome
from troth.protocol.types import Hash32
from troth.protocol.wire import Commit, Open
from troth.scheduler.assembly import assembled
from troth.scheduler.lifecycle import Lifecycle
from troth.scheduler.openings import seats
from troth.scheduler.service import Scheduler

pytestmark = [pytest.mark.chain, pytest.mark.slow]


async def lines_of(lifecycle: Lifecycle) -> list[dict[str, Any]]:
    return [line async for line in lifecycle.stream.lines()]


def verifier_only(lifecycle: Lifecycle, scene: Stage) -> ToyNode:
    """A node that infers nothing in the task."""
    assignment = lifecycle.task.assignment
    found: ToyNode = scene.node(
        next(party for party in assignment.verifiers(1) if party not in assignment.candidates(0))
    )
    return found


@asynccontextmanager
async def mining(deployed: Any, wanted: Callable[[], bool]) -> AsyncIterator[None]:
    """Blocks go by while `wanted()`."""

    async def mine() -> None:
        while True:
            await asyncio.sleep(0.05)
            if wanted():
                await asyncio.to_thread(deployed.anvil.mine, 2)

    task = asyncio.create_task(mine())
    try:
        yield
    finally:
        task.cancel()


async def test_a_node_cannot_collect_two_countersignatures_for_one_position(deployed: Any, tmp_path: Path) -> None:
    """Two of them are an equivocation, for which the contract takes the scheduler's whole stake."""
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order(max_tokens=6))
        scene.node(lifecycle.task.assignment.candidates(0)[0]).faults.signs_twice_at = 4
        assert (await lines_of(lifecycle))[-1].get("outcome") == "accepted"
        found: dict[tuple[int, int, int], bytes] = {}
        for node in scene.nodes:
            for place, row_hash in node.countersigned:
                assert found.setdefault(place, row_hash) == row_hash, place


async def test_states_that_are_no_numbers_cost_their_node_and_not_the_next_one(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order())
        scene.node(lifecycle.task.assignment.candidates(0)[0]).faults.no_numbers = True
        lines = await lines_of(lifecycle)
        assert lines[-1].get("outcome") == "accepted", lines[-1]


async def test_a_node_that_drips_cannot_make_its_scheduler_late(deployed: Any, tmp_path: Path) -> None:
    """Each answer comes just in time; the task is given up before its commit window is over."""
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        stake = scheduler.desk.ledger.state.account(scene.scheduler.address).stake
        escrow = scheduler.desk.ledger.state.escrow_of(scene.client.address)
        for node in scene.nodes:
            node.faults.drips = 0.3
        lifecycle = await scheduler.submit(await scene.order(max_tokens=200))
        async with mining(deployed, lambda: lifecycle.story.opened is not None and lifecycle.story.aborting is None):
            lines = await asyncio.wait_for(lines_of(lifecycle), SECONDS)
        assert (lines[-1]["type"], lines[-1]["code"]) == ("failed", "window_used_up"), lines[-1]
        assert await scene.outcome(lifecycle.task.task_id) is Outcome.ABORTED
        assert scheduler.desk.ledger.state.account(scene.scheduler.address).stake == stake
        assert scheduler.desk.ledger.state.escrow_of(scene.client.address) == escrow


async def test_tiles_in_an_exact_class_do_not_block_the_settlement(deployed: Any, tmp_path: Path) -> None:
    async with (
        stage(deployed, tmp_path, exact=True) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        lifecycle = await scheduler.submit(await scene.order())
        padding = verifier_only(lifecycle, scene)
        padding.faults.pads_openings = True
        async with mining(deployed, lambda: lifecycle.story.committed is not None and lifecycle.story.settling is None):
            lines = await asyncio.wait_for(lines_of(lifecycle), SECONDS)
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert scheduler.desk.ledger.state.account(padding.address).stake < scene.execution_class.minimum_stake


async def test_a_verifier_that_copies_what_it_was_shown_is_left_out(deployed: Any, tmp_path: Path) -> None:
    """It computed something else, then commits to the inferencer's own root: its promise from before does not fit."""
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order())
        lazy = verifier_only(lifecycle, scene)
        lazy.faults.wrong_states = lazy.faults.copies_root = True
        lines = await asyncio.wait_for(lines_of(lifecycle), SECONDS)
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        task = scheduler.desk.ledger.task(lifecycle.task.task_id)
        assert task is not None
        place = 1 + lifecycle.task.assignment.verifiers(1).index(lazy.address)
        assert task.task.posts_of(1)[place] == bytes(32)
        assert all(task.task.posts_of(1)[1 + other] != bytes(32) for other in range(3) if 1 + other != place)


async def reveal_as(scene: Stage, scheduler: Scheduler, header: Open, party: int, opening: Opening) -> None:
    await asyncio.to_thread(scene.anvil.mine, 1)
    await scheduler.desk.ledger.catch_up()
    record = scheduler.desk.ledger.task(Hash32(header.task_id))
    assert record is not None
    await scene.chain.execute(
        reveal(Hash32(header.task_id), record.task, header.segment, party, opening), scene.anvil.keys[5]
    )


async def test_revealing_one_thing_and_telling_another_does_not_block_the_settlement(
    deployed: Any, tmp_path: Path
) -> None:
    """An inferencer's verdict is bound by nothing: what it reveals itself is what the contract compares with."""
    async with (
        stage(deployed, tmp_path, exact=True) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        lifecycle = await scheduler.submit(await scene.order())
        revealed = asyncio.Event()

        async def contradict(header: Open, opening: Opening) -> None:
            if header.segment == 0 and not revealed.is_set():
                revealed.set()
                await reveal_as(scene, scheduler, header, 0, replace(opening, verdict=False))

        scene.node(lifecycle.task.assignment.candidates(0)[0]).faults.before_opening = contradict
        lines = await asyncio.wait_for(lines_of(lifecycle), SECONDS)
        assert revealed.is_set()
        assert lines[-1].get("outcome") == "accepted", lines[-1]


@pytest.mark.parametrize("exact", [False, True])
async def test_revealing_on_chain_and_refusing_the_scheduler_does_not_block_the_settlement(
    deployed: Any, tmp_path: Path, exact: bool
) -> None:
    async with (
        stage(deployed, tmp_path, exact=exact) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        lifecycle = await scheduler.submit(await scene.order())
        node = verifier_only(lifecycle, scene)
        node.faults.refuses.add(Open)
        revealed = asyncio.Event()

        async def on_its_own() -> None:
            await eventually(lambda: (lifecycle.story.committed if exact else lifecycle.story.sampled) is not None)
            record = scheduler.desk.ledger.task(lifecycle.task.task_id)
            assert record is not None
            seed = None if exact else record.task.progress.seed
            for seat in seats(record.task):
                if seat.party == node.address:
                    header = Open(lifecycle.task.task_id, seat.segment, record.task.progress.attempt)
                    await reveal_as(
                        scene,
                        scheduler,
                        header,
                        seat.place,
                        node.opening(header.task_id, header.segment, header.attempt, seed),
                    )
            revealed.set()

        revealing = asyncio.create_task(on_its_own())
        async with mining(deployed, lambda: revealed.is_set() and lifecycle.story.settling is None):
            lines = await asyncio.wait_for(lines_of(lifecycle), SECONDS)
        await revealing
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert scheduler.desk.ledger.state.account(node.address).stake == scene.execution_class.minimum_stake


async def test_an_attempt_is_not_begun_twice_by_a_restart(deployed: Any, tmp_path: Path) -> None:
    """Its rows were countersigned before the restart; other rows at the same positions would be an equivocation."""
    async with stage(deployed, tmp_path) as scene:
        async with assembled(scene.configuration(), scene.keys) as scheduler:
            lifecycle = await scheduler.submit(await scene.order())
            for candidate in lifecycle.task.assignment.candidates(0)[:1]:
                scene.node(candidate).faults.refuses.add(Commit)
            second = scene.node(lifecycle.task.assignment.candidates(0)[1])
            second.faults.drips = 0.4
            await eventually(lambda: getattr(lifecycle.story.generating, "attempt", 0) == 1)
            await eventually(lambda: ("Forward", 0, 1) in second.seen)
        second.faults.drips = 0.0
        async with assembled(scene.configuration(), scene.keys) as scheduler:
            await scheduler.drain()
            assert await scene.outcome(lifecycle.task.task_id) is Outcome.ACCEPTED
        attempts = [attempt for kind, _, attempt in second.seen if kind == "Forward"]
        assert max(attempts) == 2, attempts
