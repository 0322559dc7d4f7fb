"""The chain misbehaves under a running task: it goes away, or takes back the blocks that hold the task's steps."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.flaky_link import flaky_link
from support.scheduler_stage import Stage, stage
from support.scripted_journal import ScriptedJournal
from support.waiting import SECONDS, eventually

from troth.protocol.calls.views import escrow_of
from troth.protocol.events import Slashed, TaskAborted, TaskCommitted, TaskOpened, TaskSettled
from troth.protocol.identifiers import task_id
from troth.protocol.settlement import Outcome
from troth.scheduler.assembly import assembled
from troth.scheduler.errors import ChainAway

pytestmark = [pytest.mark.chain, pytest.mark.slow]


async def task_events(scene: Stage, task: bytes) -> Counter[str]:
    found = await scene.chain.events(0, await scene.chain.block_number())
    kinds = (TaskOpened, TaskCommitted, TaskSettled, TaskAborted, Slashed)
    return Counter(
        type(event).__name__ for event in found if isinstance(event, kinds) and getattr(event, "task_id", None) == task
    )


async def accepted_once(scene: Stage, task: bytes, lines: list[dict[str, Any]], escrow_before: int) -> None:
    """The client has one answer and has paid for it once; nobody was slashed."""
    assert lines[-1].get("outcome") == "accepted", lines[-1]
    assert [line["position"] for line in lines if line["type"] == "token"] == list(range(6))
    assert await scene.outcome(task) is Outcome.ACCEPTED
    assert await task_events(scene, task) == {"TaskOpened": 1, "TaskCommitted": 1, "TaskSettled": 1}
    assert escrow_before - await scene.chain.read(escrow_of(scene.client.address)) == scene.fee


@pytest.mark.parametrize(
    ("kept_until", "taken_back_at"),
    [
        ("opening", "opened"),
        ("opening", "generated"),
        ("opening", "committing"),
        ("opening", "committed"),
        ("opening", "settling"),
        ("committing", "committed"),
        ("committing", "settling"),
    ],
)
async def test_a_reorganisation_takes_steps_back(
    deployed: Any, tmp_path: Path, kept_until: str, taken_back_at: str
) -> None:
    anvil, snapshot = deployed.anvil, Future[str]()

    def keep() -> None:
        snapshot.set_result(anvil.rpc("evm_snapshot"))

    def take_back() -> None:
        # The fee is locked beside the generation: the one may come to its step before the other is at its own.
        assert anvil.rpc("evm_revert", snapshot.result(SECONDS))
        anvil.mine(4)

    journal = partial(ScriptedJournal, script={kept_until: keep, taken_back_at: take_back})
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys, journal) as scheduler:
        before = await scene.chain.read(escrow_of(scene.client.address))
        lifecycle = await scheduler.submit(await scene.order())
        async with asyncio.timeout(SECONDS):
            lines = [line async for line in lifecycle.stream.lines()]
        assert snapshot.done()
        await accepted_once(scene, lifecycle.task.task_id, lines, before)


@pytest.mark.parametrize("kept_until", ["opening", "committing", "settling"])
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_reorganisation_takes_the_settlement_back(
    deployed: Any, tmp_path: Path, kept_until: str, restarted: bool
) -> None:
    """The client has its answer, and nobody is there any more to ask for it: it is settled again by itself."""
    anvil, snapshot = deployed.anvil, Future[str]()
    journal = partial(ScriptedJournal, script={kept_until: lambda: snapshot.set_result(anvil.rpc("evm_snapshot"))})
    async with stage(deployed, tmp_path) as scene, AsyncExitStack() as life:
        scheduler = await life.enter_async_context(assembled(scene.configuration(), scene.keys, journal))
        before = await scene.chain.read(escrow_of(scene.client.address))
        lifecycle = await scheduler.submit(await scene.order())
        async with asyncio.timeout(SECONDS):
            lines = [line async for line in lifecycle.stream.lines()]
        task = lifecycle.task.task_id
        await accepted_once(scene, task, lines, before)
        if restarted:
            await life.aclose()
        assert anvil.rpc("evm_revert", snapshot.result(SECONDS))
        anvil.mine(4)
        assert await scene.outcome(task) is not Outcome.ACCEPTED
        if restarted:
            scheduler = await life.enter_async_context(assembled(scene.configuration(), scene.keys))
        async with asyncio.timeout(SECONDS):
            while await scene.outcome(task) is not Outcome.ACCEPTED:  # noqa: ASYNC110 - the chain tells nobody
                await asyncio.sleep(0.1)
        await eventually(lambda: not scheduler.desk.journal.unfinished())
        await accepted_once(scene, task, lines, before)


async def test_a_reorganisation_that_takes_the_deposit_too_costs_nothing(deployed: Any, tmp_path: Path) -> None:
    """Nothing can be locked any more: the task ends, and the client is told that it was not charged."""
    anvil = deployed.anvil

    def spend() -> None:
        assert anvil.rpc("evm_revert", snapshot)
        withdrawal = asyncio.run_coroutine_threadsafe(scene.withdraw(before), loop)
        withdrawal.result(SECONDS)
        anvil.mine(4)

    loop = asyncio.get_running_loop()
    journal = partial(ScriptedJournal, script={"committing": spend})
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys, journal) as scheduler:
        before = await scene.chain.read(escrow_of(scene.client.address))
        snapshot = anvil.rpc("evm_snapshot")
        lifecycle = await scheduler.submit(await scene.order())
        async with asyncio.timeout(SECONDS):
            lines = [line async for line in lifecycle.stream.lines()]
        assert (lines[-1]["type"], lines[-1]["charged"]) == ("failed", False)
        assert await task_events(scene, lifecycle.task.task_id) == {}
        assert not scheduler.desk.journal.unfinished()


@pytest.mark.parametrize("step", ["opening", "opened", "generated", "committing", "committed", "settling"])
async def test_the_chain_goes_away_at_a_step_and_comes_back(deployed: Any, tmp_path: Path, step: str) -> None:
    loop = asyncio.get_running_loop()
    async with flaky_link(deployed.anvil.port) as link, stage(deployed, tmp_path) as scene:

        def cut() -> None:
            asyncio.run_coroutine_threadsafe(link.cut(), loop).result(SECONDS)

        journal = partial(ScriptedJournal, script={step: cut})
        async with assembled(scene.configuration(rpc=link.url), scene.keys, journal) as scheduler:
            before = await scene.chain.read(escrow_of(scene.client.address))
            lifecycle = await scheduler.submit(await scene.order())
            await eventually(lambda: link.cuts and scheduler.desk.ledger.failure is not None)
            assert any("the chain is away" in reason for reason in scheduler.reasons())
            with pytest.raises(ChainAway):
                await scheduler.submit(await scene.order())
            await link.mend()
            async with asyncio.timeout(SECONDS):
                lines = [line async for line in lifecycle.stream.lines()]
            await accepted_once(scene, lifecycle.task.task_id, lines, before)


async def test_a_chain_that_stays_away_keeps_no_client_waiting(deployed: Any, tmp_path: Path) -> None:
    """The fee cannot be locked, so no token is shown; once the chain is back nothing stays locked."""
    loop = asyncio.get_running_loop()
    async with flaky_link(deployed.anvil.port) as link, stage(deployed, tmp_path) as scene:

        def cut() -> None:
            asyncio.run_coroutine_threadsafe(link.cut(), loop).result(SECONDS)

        journal = partial(ScriptedJournal, script={"opening": cut})
        settings = scene.configuration(rpc=link.url)
        settings = replace(settings, waits=replace(settings.waits, locking=1.0))
        async with assembled(settings, scene.keys, journal) as scheduler:
            before = await scene.chain.read(escrow_of(scene.client.address))
            submitted = await scene.order()
            lifecycle = await scheduler.submit(submitted)
            async with asyncio.timeout(SECONDS):
                lines = [line async for line in lifecycle.stream.lines()]
            assert [line["type"] for line in lines] == ["assigned", "failed"]
            assert lines[-1]["charged"] is False
            await link.mend()
            await eventually(lambda: not scheduler.desk.journal.unfinished())
            assert await scene.outcome(task_id(submitted.order, scene.chain.domain)) in (None, Outcome.ABORTED)
            assert await scene.chain.read(escrow_of(scene.client.address)) == before
