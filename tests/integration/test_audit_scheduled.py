"""The audit of tasks that a real scheduler ran over toy nodes: two segments, several parties' stakes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.scheduler_stage import stage

from troth.audit.checks import NUMBERS
from troth.audit.report import ExitCode, Report
from troth.audit.running import audit_chain, audit_task
from troth.protocol.types import Hash32
from troth.scheduler.assembly import assembled

pytestmark = [pytest.mark.chain, pytest.mark.slow]


async def run_order(scheduler: Any, submitted: Any) -> tuple[Hash32, str]:
    lifecycle = await scheduler.submit(submitted)
    lines = [line async for line in lifecycle.stream.lines()]
    return Hash32(bytes.fromhex(lines[0]["task_id"][2:])), lines[-1]["outcome"]


async def audited(scene: Any, task: Hash32) -> Report:
    return await audit_task(scene.url, scene.chain.contract, task, start=0, last=None, only=NUMBERS)


@pytest.mark.parametrize("exact", [False, True])
async def test_two_segments_served_honestly_are_clean(deployed: Any, tmp_path: Path, exact: bool) -> None:
    async with (
        stage(deployed, tmp_path, exact=exact) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        played = await asyncio.gather(*[run_order(scheduler, await scene.order()) for _ in range(2)])
        assert {outcome for _, outcome in played} == {"accepted"}
        for task, _ in played:
            report = await audited(scene, task)
            assert report.findings == ()
        whole = await audit_chain(scene.url, scene.chain.contract, start=0, first=0, last=None, only=NUMBERS)
        assert set(whole.tasks) == {task for task, _ in played}
        assert whole.exit_code is ExitCode.CLEAN


async def test_false_states_in_one_of_two_segments_name_their_inferencer(deployed: Any, tmp_path: Path) -> None:
    async with stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order())
        liars = lifecycle.task.assignment.candidates(1)
        for liar in liars:
            scene.node(liar).faults.wrong_states = True
        lines = [line async for line in lifecycle.stream.lines()]
        assert lines[-1]["outcome"] == "rejected", lines[-1]
        report = await audited(scene, Hash32(lifecycle.task.task_id))
    assert report.exit_code is ExitCode.VIOLATION
    assert {finding.check for finding in report.findings} == {"V11"}
    named = [finding for finding in report.findings if finding.role == "inferencer"]
    assert any(finding.segment == 1 and finding.party in liars for finding in named)
