"""Disks that are full under whole processes: what is asked meanwhile ends in words, nothing is lost, and with room it
goes on.

Each party's folder is a small file system of its own, filled to the last byte.
"""

from __future__ import annotations

import errno
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("torch")

from support.fault_network import NODES, FaultNetwork, fault_network

from troth.client.orders.journal import Phase

pytestmark = [
    pytest.mark.chain,
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]
QUESTION = (3, 14, 15, 9, 26)
PARTIES = ("scheduler", *(f"node {number}" for number in range(NODES)))
SIZE = "24m"


@contextmanager
def small_disks(folder: Path) -> Iterator[None]:
    """A file system of a few megabytes for each party; skips where none may be mounted."""
    mounted: list[Path] = []
    try:
        for name in PARTIES:
            place = folder / name
            place.mkdir(parents=True)
            command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", place]
            done = subprocess.run(command, capture_output=True, check=False)
            if done.returncode:
                pytest.skip(f"no file system can be mounted here: {done.stderr.decode()[:100]}")
            mounted.append(place)
        yield
    finally:
        for place in mounted:
            subprocess.run(["umount", "-l", place], check=True)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def network(anvil: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultNetwork]:
    folder = tmp_path_factory.mktemp("disks")
    with small_disks(folder):
        async with fault_network(anvil, folder) as made:
            yield made


def fill(place: Path) -> Path:
    """Take all room there is; the file that does."""
    ballast = place / "ballast"
    piece = 1 << 16
    with ballast.open("wb", buffering=0) as file:
        while piece:
            try:
                file.write(b"\0" * piece)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                piece //= 2
    return ballast


def outcomes(client: Any) -> list[str]:
    said = client.settings.said
    return [json.loads(line)["outcome"] for line in said.read_text().splitlines()] if said.exists() else []


@pytest.mark.parametrize("whose", ["scheduler", "node"])
async def test_with_a_full_disk_questions_fail_in_words_and_with_room_they_are_answered(
    network: FaultNetwork, whose: str
) -> None:
    await network.asked(QUESTION)
    assert network.entries()[0].phase is Phase.CHECKED
    ballasts = [fill(network.folder / name) for name in PARTIES if name.startswith(whose)]
    client = network.asking((*QUESTION, 1))
    await network.until(lambda: outcomes(client) or not client.alive, "the question ends")
    (outcome,) = outcomes(client)
    assert ":" in outcome, outcome
    assert all(process.alive for process in network.processes.values()), network.tails()
    for ballast in ballasts:
        ballast.unlink()
    await network.ended(client)
    await network.until(lambda: all(network.is_ready(name) for name in PARTIES), "all are ready again")
    await network.asked((*QUESTION, 2))
    assert network.entries()[0].phase is Phase.CHECKED
    await network.nothing_lost()
