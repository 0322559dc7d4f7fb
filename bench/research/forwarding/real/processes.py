"""The nodes' processes: started together, and ended whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from research.forwarding.real.messages import Line
from research.forwarding.real.nodes import NodeFailed, Nodes

ROOT = Path(__file__).resolve().parents[4]
FOLDERS = (ROOT / "bench", ROOT / "scripts", ROOT / "tests")
"""Where a node's process finds its own modules."""
CALLING = 120.0
"""Seconds until a process must have called: it imports torch first."""
ENDING = 20.0
"""Seconds that the processes have to end by themselves."""
SHOWN = 2_000
"""Characters of a failed process's log."""


@asynccontextmanager
async def running(count: int, model: Path) -> AsyncIterator[Nodes]:
    """So many nodes with engines that run; raises NodeFailed with the end of the logs where one does not start."""
    with tempfile.TemporaryDirectory(prefix="troth-real-") as name:
        folder, nodes = Path(name), Nodes()
        server = await asyncio.start_unix_server(
            lambda reader, writer: nodes.join(Line(reader, writer)), path=str(folder / "driver")
        )
        processes: list[asyncio.subprocess.Process] = []
        try:
            for number in range(count):
                processes.append(await _start(number, folder, model))
            await _called(nodes, processes)
            await nodes.ready()
            yield nodes
        except NodeFailed as error:
            raise NodeFailed(f"{error}\n{_logs(folder)}") from error
        finally:
            await nodes.close()
            server.close()
            await _end(processes)


async def _start(number: int, folder: Path, model: Path) -> asyncio.subprocess.Process:
    paths = [*map(str, FOLDERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"OMP_WAIT_POLICY": "passive", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "research.forwarding.real.node", str(folder / "driver"), str(number)]
    with (folder / f"node{number}.log").open("wb") as log:
        # A group of its own, which vLLM's processes are in too: it is ended as a whole.
        return await asyncio.create_subprocess_exec(
            *command, str(model), str(folder), stdout=log, stderr=log, env=environment, start_new_session=True
        )


async def _called(nodes: Nodes, processes: Sequence[asyncio.subprocess.Process]) -> None:
    deadline = time.monotonic() + CALLING
    while nodes.joined < len(processes):
        if any(process.returncode is not None for process in processes):
            raise NodeFailed("a node's process ended before it called")
        if time.monotonic() > deadline:
            raise NodeFailed(f"{len(processes) - nodes.joined} nodes did not call within {CALLING:.0f} s")
        await asyncio.sleep(0.1)


async def _end(processes: Sequence[asyncio.subprocess.Process]) -> None:
    """They were hung up on, and end by themselves; what is left of their groups is killed."""
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDING):
                await asyncio.gather(*(process.wait() for process in processes))
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await asyncio.gather(*(process.wait() for process in processes))


def _logs(folder: Path) -> str:
    return "\n".join(path.read_text(errors="replace")[-SHOWN:] for path in sorted(folder.glob("node*.log")))
