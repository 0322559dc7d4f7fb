"""Whole tasks against a real contract: what a client sees, and what the chain says afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.scheduler_stage import Stage, eventually, stage

from troth.protocol.settlement import Outcome
from troth.protocol.wire import Commit, Compare, Forward, Open
from troth.scheduler.assembly import assembled
from troth.scheduler.receipts import receipt
from troth.scheduler.service import Scheduler

pytestmark = [pytest.mark.chain, pytest.mark.slow]


async def run_order(scheduler: Scheduler, submitted: Any) -> list[dict[str, Any]]:
    lifecycle = await scheduler.submit(submitted)
    return [line async for line in lifecycle.stream.lines()]


def kinds(lines: list[dict[str, Any]]) -> list[str]:
    return [line["type"] for line in lines]


def task_of(lines: list[dict[str, Any]]) -> bytes:
    return bytes.fromhex(lines[0]["task_id"][2:])


@pytest.mark.parametrize("exact", [False, True])
async def test_an_order_becomes_tokens_and_an_accepted_task(deployed: Any, tmp_path: Path, exact: bool) -> None:
    async with stage(deployed, tmp_path, exact=exact) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lines = await run_order(scheduler, await scene.order(max_tokens=6))
        assert kinds(lines) == [
            "assigned",
            "opened",
            *["token"] * 6,
            "finished",
            "committed",
            "settled",
        ], lines[-1]
        assert [line["position"] for line in lines if line["type"] == "token"] == list(range(6))
        assert lines[-1]["outcome"] == "accepted"
        assert await scene.outcome(task_of(lines)) is Outcome.ACCEPTED
        shown = receipt(task_of(lines), scheduler.desk.journal)
        assert shown is not None
        assert shown["state"] == "settled"
        assert shown["tokens"] is None
