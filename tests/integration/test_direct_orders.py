"""A direct task at its scheduler: the entry's word decides among the candidates, and nothing but that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.real_nodes import LAYERS, real_stage

from troth.protocol.types import Hash32
from troth.protocol.wire import Decode
from troth.scheduler.assembly import assembled
from troth.scheduler.errors import BadRequest, TooLate
from troth.scheduler.task_errors import UnknownTask

pytestmark = [pytest.mark.chain, pytest.mark.slow]


async def outcome(lifecycle: Any) -> str:
    lines = [line async for line in lifecycle.stream.lines()]
    return str(lines[-1].get("outcome", lines[-1]))


@pytest.mark.parametrize("place", [0, 1])
async def test_whom_the_entry_names_serves(deployed: Any, tmp_path: Path, place: int) -> None:
    async with (
        real_stage(deployed, tmp_path, ends=(LAYERS,)) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        for _ in range(2):
            submitted = await scene.order(max_tokens=4)
            lifecycle = await scheduler.submit(submitted, direct=True)
            candidates = lifecycle.task.assignment.candidates(0)
            scheduler.choose(lifecycle.task.task_id, submitted.salt, candidates[place])
            assert await outcome(lifecycle) == "accepted"
            assert lifecycle.story.generated.inferencers == (place,)


async def test_a_word_that_counts_for_nothing(deployed: Any, tmp_path: Path) -> None:
    async with (
        real_stage(deployed, tmp_path, ends=(LAYERS,)) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        submitted = await scene.order(max_tokens=4)
        lifecycle = await scheduler.submit(submitted, direct=True)
        task, assignment = lifecycle.task.task_id, lifecycle.task.assignment
        with pytest.raises(UnknownTask):
            scheduler.choose(task, Hash32(bytes(32)), assignment.candidates(0)[1])
        with pytest.raises(UnknownTask):
            scheduler.choose(Hash32(bytes(32)), submitted.salt, assignment.candidates(0)[1])
        with pytest.raises(BadRequest):
            scheduler.choose(task, submitted.salt, assignment.verifiers(0)[0])
        scheduler.choose(task, submitted.salt, assignment.candidates(0)[1])
        with pytest.raises(TooLate):
            scheduler.choose(task, submitted.salt, assignment.candidates(0)[0])
        assert await outcome(lifecycle) == "accepted"
        assert lifecycle.story.generated.inferencers == (1,)

        silent = await scene.order(max_tokens=4)
        lifecycle = await scheduler.submit(silent, direct=True)
        assert await outcome(lifecycle) == "accepted"
        with pytest.raises((TooLate, UnknownTask)):
            scheduler.choose(lifecycle.task.task_id, silent.salt, lifecycle.task.assignment.candidates(0)[0])

        ordinary = await scene.order(max_tokens=4)
        lifecycle = await scheduler.submit(ordinary)
        with pytest.raises(UnknownTask):
            scheduler.choose(lifecycle.task.task_id, ordinary.salt, lifecycle.task.assignment.candidates(0)[0])
        assert await outcome(lifecycle) == "accepted"


async def test_a_named_node_that_fails_is_replaced(deployed: Any, tmp_path: Path) -> None:
    async with (
        real_stage(deployed, tmp_path, ends=(LAYERS,)) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        submitted = await scene.order(max_tokens=120)
        lifecycle = await scheduler.submit(submitted, direct=True)
        named = lifecycle.task.assignment.candidates(0)[1]
        scene.node(named).refuses_from = (Decode, 4)
        scheduler.choose(lifecycle.task.task_id, submitted.salt, named)
        assert await outcome(lifecycle) == "accepted"
        assert lifecycle.story.generated.inferencers == (0,)
        assert lifecycle.story.generated.attempt >= 1


async def test_an_entry_that_names_nobody_is_not_waited_for(
    deployed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("troth.scheduler.entry_choice.EntryChoice.__init__.__defaults__", (600.0,))
    async with (
        real_stage(deployed, tmp_path, ends=(LAYERS,)) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        submitted = await scene.order(max_tokens=4)
        lifecycle = await scheduler.submit(submitted, direct=True)
        scheduler.choose(lifecycle.task.task_id, submitted.salt, None)
        with pytest.raises(TooLate):
            scheduler.choose(lifecycle.task.task_id, submitted.salt, lifecycle.task.assignment.candidates(0)[0])
        assert await outcome(lifecycle) == "accepted"


async def test_several_segments_are_no_direct_task(deployed: Any, tmp_path: Path) -> None:
    async with (
        real_stage(deployed, tmp_path, ends=(1, LAYERS)) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        submitted = await scene.order(max_tokens=4)
        with pytest.raises(BadRequest, match="one segment"):
            await scheduler.submit(submitted, direct=True)
        assert scheduler.desk.journal.unfinished() == []
