"""A scheduler process that is killed at any step takes its task up again: finished or refunded, never posted twice."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.scheduler_stage import Stage, body_of, stage
from support.toy_node import ToyNode
from support.waiting import SECONDS

from troth.overlay.https import pinned_client
from troth.overlay.identity import load_identity
from troth.protocol.calls.views import escrow_of
from troth.protocol.identifiers import task_id
from troth.protocol.settlement import Outcome
from troth.protocol.wire import Compare, Open

pytestmark = [pytest.mark.chain, pytest.mark.slow]
SCRIPT = Path(__file__).resolve().parent.parent / "support" / "crashing_scheduler.py"
REFUNDED = {"received", "opening", "opened", "generating"}


@asynccontextmanager
async def process(scene: Stage, step: str | None, moment: str = "after") -> AsyncIterator[tuple[Any, int]]:
    """A running scheduler and its port."""
    settings = {
        "folder": str(scene.folder),
        "rpc": scene.url,
        "contract": scene.chain.contract,
        "chain_id": scene.chain.chain_id,
        "class_id": scene.class_id.hex(),
        "operator": scene.scheduler.secret.hex(),
        "vrf": scene.keys.vrf_secret.hex(),
        "step": step,
        "moment": moment,
    }
    path = scene.folder / "settings.json"
    path.write_text(json.dumps(settings))
    running = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), str(path), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert running.stdout is not None
        port = int(await asyncio.wait_for(running.stdout.readline(), SECONDS) or 0)
        yield running, port
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


def client_of(scene: Stage, port: int) -> httpx.AsyncClient:
    pin = load_identity(scene.folder / "scheduler" / "tls").spki_sha256
    return pinned_client(f"https://127.0.0.1:{port}", pin)


async def order_until_killed(scene: Stage, step: str, moment: str) -> tuple[bytes, bytes]:
    """Task id and salt of an order during which the process died."""
    async with process(scene, step, moment) as (running, port):
        submitted = await scene.order()
        async with client_of(scene, port) as client:
            with pytest.raises(httpx.TransportError):
                await client.post("/v1/orders", json=body_of(submitted))
        assert await asyncio.wait_for(running.wait(), SECONDS) == 9
        return task_id(submitted.order, scene.chain.domain), submitted.salt


async def receipt_after_restart(scene: Stage, task: bytes, salt: bytes) -> dict[str, Any]:
    """The receipt once the restarted process has come to an end with the task; the process stops cleanly."""
    async with process(scene, None) as (running, port):
        async with client_of(scene, port) as client:
            deadline = asyncio.get_running_loop().time() + 30
            while True:
                found = (
                    await client.get("/v1/tasks/0x" + task.hex(), headers={"troth-salt": "0x" + salt.hex()})
                ).json()
                if found.get("state") in ("settled", "aborted", "failed") or "error" in found:
                    break
                assert asyncio.get_running_loop().time() < deadline, found
                await asyncio.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.wait(), SECONDS) == 0
        return dict(found)


async def posted(scene: Stage) -> int:
    """Transactions that the scheduler's account has ever sent."""
    count = scene.anvil.rpc("eth_getTransactionCount", scene.scheduler.address, "latest")
    return int(count, 16)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "step",
    [
        "received",
        "opening",
        "opened",
        "generating",
        "generated",
        "verifying",
        "committing",
        "committed",
        "settling",
        "settled",
    ],
)
async def test_killed_at_a_step(deployed: Any, tmp_path: Path, step: str, moment: str) -> None:
    async with stage(deployed, tmp_path) as scene:
        already = await posted(scene)
        task, salt = await order_until_killed(scene, step, moment)
        found = await receipt_after_restart(scene, task, salt)
        outcome = await scene.outcome(task)
        events = await _events(scene, task)
        assert await posted(scene) - already == len(events), events
        if step == "received" and moment == "before":
            assert found["error"]["code"] == "unknown_task"
        elif found["state"] == "failed":
            assert step in REFUNDED
            assert events == []
        elif found["state"] == "aborted":
            assert step in REFUNDED or (step, moment) == ("generated", "before")
            assert outcome is Outcome.ABORTED
            assert events == ["TaskOpened", "TaskAborted"]
        else:
            # The fee is locked beside the generation, which may be over by the time `opened` is recorded.
            assert step not in REFUNDED - {"opened"}
            assert outcome is Outcome.ACCEPTED
            assert events == ["TaskOpened", "TaskCommitted", "TaskSettled"]
            assert len(found["tokens"]) == 6


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", ["aborting", "aborted"])
async def test_killed_while_giving_up(deployed: Any, tmp_path: Path, step: str, moment: str) -> None:
    async with stage(deployed, tmp_path) as scene:
        faulty: list[ToyNode] = scene.nodes
        for node in faulty:
            node.faults.refuses.add(Compare)
        task, salt = await order_until_killed(scene, step, moment)
        found = await receipt_after_restart(scene, task, salt)
        assert found["state"] in ("aborted", "settled")
        assert await scene.outcome(task) is Outcome.ABORTED
        assert await _events(scene, task) == ["TaskOpened", "TaskAborted"]


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_killed_while_openings_are_missing(deployed: Any, tmp_path: Path, moment: str) -> None:
    """Nobody opens, so the sample is posted alone; the restarted process waits the window out and settles."""
    async with stage(deployed, tmp_path) as scene:
        before = await scene.chain.read(escrow_of(scene.client.address))
        for node in scene.nodes:
            node.faults.refuses.add(Open)
        task, salt = await order_until_killed(scene, "sampled", moment)
        assert await _events(scene, task, "TaskSampled") == ["TaskOpened", "TaskCommitted", "TaskSampled"]
        deployed.anvil.mine(deployed.parameters.reveal_window + 1)
        found = await receipt_after_restart(scene, task, salt)
        assert (found["state"], found["outcome"]) == ("settled", "rejected")
        steps = await _events(scene, task, "TaskSampled")
        assert steps == ["TaskOpened", "TaskCommitted", "TaskSampled", "TaskSettled"]
        assert await scene.chain.read(escrow_of(scene.client.address)) == before


async def _events(scene: Stage, task: bytes, *also: str) -> list[str]:
    """One for each transaction; a settlement usually samples too, so that event is looked for where it comes alone."""
    names = {"TaskOpened", "TaskCommitted", "TaskSettled", "TaskAborted", *also}
    found = await scene.chain.events(0, await scene.chain.block_number())
    return [
        type(event).__name__
        for event in found
        if type(event).__name__ in names and getattr(event, "task_id", None) == task
    ]
