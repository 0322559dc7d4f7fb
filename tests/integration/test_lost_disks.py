"""A scheduler that lost its disk and has its keys alone: it goes on, and nobody honest is convicted.

Whole processes on a real chain. Its nodes know what it promised them, and what they signed for it.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("torch")

from support.fault_network import FaultNetwork, fault_network

pytestmark = [
    pytest.mark.chain,
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]
QUESTION = (3, 14, 15, 9, 26)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def network(anvil: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultNetwork]:
    async with fault_network(anvil, tmp_path_factory.mktemp("lost")) as made:
        yield made


def lose_disk(network: FaultNetwork, name: str) -> None:
    """All of a party's files but its keys."""
    for path in (network.folder / name).iterdir():
        if path.is_dir() and path.name != "tls":
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()


async def test_a_scheduler_that_lost_its_disk_goes_on_with_the_same_nodes(network: FaultNetwork) -> None:
    await network.asked(QUESTION, (1, 2, 3), (4, 5, 6))
    network.processes["scheduler"].kill()
    lose_disk(network, "scheduler")
    await network.mined(60)
    await network.start("scheduler")
    before = len(network.entries())
    await network.asked(QUESTION, (7, 8, 9), (1, 1, 2))
    made = network.entries()[: len(network.entries()) - before]
    assert all(entry.paid for entry in made), [(entry.phase, entry.failure) for entry in made]
    await network.nothing_lost()
