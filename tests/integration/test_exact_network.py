"""A class of equal roots on a real chain: decode alone against prefill, and the least change there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.real_nodes import LAYERS, real_stage

from troth.protocol.events import Slashed
from troth.protocol.settlement import Outcome
from troth.scheduler.assembly import assembled

pytestmark = [pytest.mark.chain, pytest.mark.slow]


async def collected(lifecycle: Any) -> list[dict[str, Any]]:
    return [line async for line in lifecycle.stream.lines()]


@pytest.mark.parametrize("ends", [(LAYERS,), (1, LAYERS)], ids=["alone", "relayed"])
async def test_honest_roots_are_equal(deployed: Any, tmp_path: Path, ends: tuple[int, ...]) -> None:
    async with (
        real_stage(deployed, tmp_path, ends=ends, exact=True) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        for tokens in (1, 17, 70):
            lifecycle = await scheduler.submit(await scene.order(max_tokens=tokens))
            lines = await collected(lifecycle)
            assert lines[-1].get("outcome") == "accepted", lines[-1]
            events = scheduler.desk.ledger.state.tasks[lifecycle.task.task_id].events
            assert not [event for event in events if isinstance(event, Slashed)]


async def test_a_last_bit_in_every_state_is_rejected(deployed: Any, tmp_path: Path) -> None:
    """float32 has 23 bits of mantissa; a tolerant class cannot see the last of them, nor a 0.1 % change in bfloat16."""
    async with (
        real_stage(deployed, tmp_path, ends=(LAYERS,), exact=True) as scene,
        assembled(scene.configuration(), scene.keys) as scheduler,
    ):
        lifecycle = await scheduler.submit(await scene.order(max_tokens=9))
        cheats = lifecycle.task.assignment.candidates(0)
        for cheat in cheats:
            engine = scene.node(cheat).engine
            engine.wrong_segment, engine.sway = 0, 1 + 2.0**-22
        lines = await collected(lifecycle)
        assert lines[-1].get("outcome") == "rejected", lines[-1]
        record = scheduler.desk.ledger.state.tasks[lifecycle.task.task_id]
        assert record.outcome is Outcome.REJECTED
        slashed = {event.operator for event in record.events if isinstance(event, Slashed)}
        assert len(slashed) == 1
        assert slashed <= set(cheats)
