"""The scheduler with the real node service and torch engine, a small random Llama in two segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.real_nodes import real_stage

from troth.protocol.wire import Commit, Forward
from troth.scheduler.assembly import assembled

pytestmark = [pytest.mark.chain, pytest.mark.slow]


async def collected(lifecycle: Any) -> list[dict[str, Any]]:
    return [line async for line in lifecycle.stream.lines()]


def tokens(lines: list[dict[str, Any]]) -> list[int]:
    return [line["id"] for line in lines if line["type"] == "token"]


async def test_real_nodes_serve_verify_and_are_paid(deployed: Any, tmp_path: Path) -> None:
    async with real_stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lines = await collected(await scheduler.submit(await scene.order(max_tokens=12)))
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert len(tokens(lines)) == 12
        state = scheduler.desk.ledger.state
        assert state.account(scene.scheduler.address).credit == 6 * scene.execution_class.unit
        assert sum(state.account(node.address).credit for node in scene.nodes) == 48 * scene.execution_class.unit


@pytest.mark.parametrize("segment", [0, 1])
async def test_a_real_node_that_fails_in_the_middle_is_replaced(deployed: Any, tmp_path: Path, segment: int) -> None:
    async with real_stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order(max_tokens=12))
        failing = scene.node(lifecycle.task.assignment.candidates(segment)[0])
        failing.refuses_from = (Forward, 6)
        lines = await collected(lifecycle)
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert lifecycle.story.generated.attempt >= 1
        failing.refuses_from = None
        whole = await collected(await scheduler.submit(await scene.order(max_tokens=12)))
        assert tokens(lines) == tokens(whole)


async def test_a_real_node_that_is_gone_before_it_commits_is_replaced(deployed: Any, tmp_path: Path) -> None:
    async with real_stage(deployed, tmp_path) as scene, assembled(scene.configuration(), scene.keys) as scheduler:
        lifecycle = await scheduler.submit(await scene.order(max_tokens=6))
        scene.node(lifecycle.task.assignment.candidates(1)[0]).refuses_from = (Commit, 0)
        lines = await collected(lifecycle)
        assert lines[-1].get("outcome") == "accepted", lines[-1]
        assert lifecycle.story.generated.attempt >= 1
