"""Many orders on whole processes that are killed at random, and processes that serve a thousand: figures are printed.

Nothing random is fixed. `make network-tests` runs them.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.fault_network import FaultNetwork, fault_network
from support.fault_processes import Process

from troth.client.orders.journal import Phase

pytestmark = [pytest.mark.chain, pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(7200)]

ORDERS = int(os.environ.get("TROTH_FAULT_ORDERS", "200"))
TASKS = int(os.environ.get("TROTH_SOAK_TASKS", "1000"))
ROUND = 200
"""Questions that one client's process asks; a tab holds enough for them."""
BLOCK_SECONDS = 12.0
"""As on Ethereum, since nobody is killed here who would have to be waited for in blocks."""
MEBIBYTE = 1 << 20
GROWTH = 8 * MEBIBYTE
"""What a process may grow by between the middle and the end of a soak: less than 9 kB a task."""


def questions(count: int) -> list[tuple[int, ...]]:
    return [(number % 47, number // 47 % 47, 11) for number in range(count)]


async def killing(network: FaultNetwork, client: Process, killed: Counter[str]) -> Process:
    """Kill somebody every few seconds, and start it again, until the client has asked everything and is paid."""
    left = client
    while left.alive:
        await asyncio.sleep(random.uniform(1, 5))
        name = random.choice([*network.processes, "scheduler", "client"])
        if not left.alive:
            break
        killed["node" if name.startswith("node") else name] += 1
        if name == "client":
            left.kill()
            asked = len(network.entries())
            left = network.asking(*questions(ORDERS)[asked:], at_once=3, check="50%")
        else:
            network.processes[name].kill()
            await asyncio.sleep(random.uniform(0, 2))
            await network.start(name)
    return left


async def test_nothing_is_lost_whoever_is_killed_whenever(anvil: Any, tmp_path: Path) -> None:
    async with fault_network(anvil, tmp_path) as network:
        killed: Counter[str] = Counter()
        begun = time.monotonic()
        client = await killing(network, network.asking(*questions(ORDERS), at_once=3, check="50%"), killed)
        assert client.code == 0, client.tail()
        await network.nothing_lost()
        entries = network.entries()
        phases = Counter(entry.phase.value for entry in entries)
        kills = f"{sum(killed.values())} kills: {dict(killed)}"
        print(f"\n{len(entries)} orders in {time.monotonic() - begun:.0f} s, {kills}")
        print(f"they ended {dict(phases)}; {network.spent()} paid, 0 wei missing, nobody slashed")
        assert set(phases) <= {Phase.CHECKED, Phase.UNDRAWN, Phase.FAILED, Phase.UNCLEAR}


def memory_of(process: Process) -> int:
    """Bytes that it has for itself and holds now."""
    for line in Path(f"/proc/{process.running.pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("Linux says nothing of its memory")


async def test_memory_of_a_node_and_a_scheduler_is_flat_over_a_thousand_tasks(anvil: Any, tmp_path: Path) -> None:
    async with fault_network(anvil, tmp_path, block_seconds=BLOCK_SECONDS) as network:
        seen: list[dict[str, int]] = []
        for asked in range(ROUND, TASKS + 1, ROUND):
            await network.paid(network.asking(*questions(ROUND), at_once=4, check="50%"))
            await network.settled()
            seen.append({name: memory_of(one) for name, one in network.processes.items()})
            assert len(network.entries()) >= asked, "orders were made for all questions"
            sizes = ", ".join(f"{name} {size / MEBIBYTE:.1f}" for name, size in seen[-1].items())
            print(f"\nafter {asked} tasks, in MiB: {sizes}")
        for name in network.processes:
            assert seen[-1][name] - seen[len(seen) // 2][name] < GROWTH, name
        await network.nothing_lost()
