"""Whoever is told to end ends, also where what it waited for comes in the same moment.

Python 3.11's ``asyncio.wait_for`` gives the result and forgets the cancellation there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from troth.node.direct.serving import ServingOrder
from troth.node.group import telling
from troth.node.group.telling import MemberLine

ROOT = Path(__file__).resolve().parents[2]
MOMENTS = range(6)


async def ends(
    work: Coroutine[Any, Any, Any], waits: Callable[[], object], comes: Callable[[], object], moment: int
) -> bool:
    """Whether work that is cancelled some steps of the loop after what it waits for has come is cancelled."""
    task = asyncio.create_task(work)
    for _ in range(10_000):
        await asyncio.sleep(0)
        if waits():
            break
    comes()
    for _ in range(moment):
        await asyncio.sleep(0)
    was_over = task.done()
    task.cancel()
    await asyncio.wait((task,), timeout=5)
    return was_over or task.cancelled()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_node_that_leaves_stops_telling_a_member_that_speaks_just_then(
    moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "HEARTBEAT", 1e-6)
    line = MemberLine(failures=32)
    assert await ends(line.pause(), lambda: line._heard._waiters, line.wake, moment)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_order_whose_client_leaves_is_served_no_further(moment: int) -> None:
    order: Any = SimpleNamespace(max_tokens=1)
    serving = ServingOrder.__new__(ServingOrder)
    serving._order, serving._out, serving._began = order, asyncio.Queue(), asyncio.get_running_loop().time()
    assert await ends(serving._next(), lambda: serving._out._getters, lambda: serving._out.put_nowait(b"line"), moment)


def test_no_loop_waits_in_a_way_that_forgets_to_end() -> None:
    sources = ((path.relative_to(ROOT), path.read_text()) for path in ROOT.glob("*/troth/**/*.py"))
    found = [str(path) for path, text in sources if "await asyncio.wait_for(" in text]
    assert not found, "write `async with asyncio.timeout(…)`"
