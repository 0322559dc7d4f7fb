"""Circuits over relays of a stage, as tests of relays build and break them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.overlay_stage import Stage, overlay_stage
from support.overlay_tap import Tap

from troth.overlay.circuits.circuit import Circuit
from troth.overlay.relay.limits import RelayLimits
from troth.transport.errors import CircuitFailed

SECONDS = 60.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what must come."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@asynccontextmanager
async def staged(
    folder: Path, patch: pytest.MonkeyPatch, limits: RelayLimits | None = None
) -> AsyncIterator[tuple[Stage, Tap, Circuit]]:
    async with overlay_stage(folder, limits=limits) as stage:
        tap = Tap(stage, patch)
        yield stage, tap, await built(stage)


async def built(stage: Stage) -> Circuit:
    """A circuit, once the cell that follows its set-up has arrived: from then on every cell is the test's."""
    circuit = await stage.client.build(stage.path)
    await until(lambda: all(one.proven for relay in stage.relays for one in relay.switch.circuits))
    return circuit


async def failure_of(circuit: Circuit, stage: Stage, message: bytes = b"prompt") -> CircuitFailed:
    """What the client learns when it sends a message."""
    with pytest.raises(CircuitFailed) as caught:
        await circuit.request(stage.destination.name, message, SECONDS)
    return caught.value


async def all_closed(stage: Stage) -> None:
    """Every relay has forgotten every circuit and its keys."""
    await until(lambda: not any(relay.switch.circuits for relay in stage.relays))
