"""How many orders a second one scheduler takes from admission to result, and how much of a core each costs it."""

from __future__ import annotations

import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.market.running.load import PROMPT, WRITTEN, Load, Sent
from benchmarks.market.running.toy_network import ToyNetwork, toy_network

from troth.demo.processes import Child

TABS = 8
WARM_UP = 64


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run: wall seconds, and processor seconds by process."""

    orders: list[Sent]
    seconds: float
    spent: dict[str, float]


def processor_seconds(child: Child | None) -> float:
    """What a process (None: this one) has used of processors since its start."""
    if child is None:
        times = os.times()
        return times.user + times.system
    fields = Path(f"/proc/{child.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run(load: Load, count: int) -> Run:
    """Send ``count`` orders that were signed before."""
    network = load.network
    watched = {"scheduler": network.scheduler, "nodes": network.nodes, "chain": network.chain, "clients": None}
    orders = load.signed(count)
    before = {name: processor_seconds(child) for name, child in watched.items()}
    seconds = await load.send(orders)
    return Run(
        orders, seconds, {name: processor_seconds(child) - before[name] for name, child in watched.items()}
    )


async def measure(count: int, concurrent: int, report: ..., home: Path | None = None) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        async with toy_network(home or Path(folder), clients=TABS) as network:
            return await _measure(network, count, concurrent, report)


async def _measure(network: ToyNetwork, count: int, concurrent: int, report: ...) -> list[Figure]:
    load = Load(network, concurrent=concurrent, reveals=False)
    await run(load, WARM_UP)
    done = await run(load, count)
    failed = [one.failure for one in done.orders if one.failure]
    if failed:
        raise RuntimeError(f"{len(failed)} of {count} orders failed, the first one: {failed[0]}")
    times = sorted(one.seconds for one in done.orders)
    print(count / done.seconds, {name: round(1e3 * s / count, 2) for name, s in done.spent.items()}, statistics.median(times), times[int(len(times) * 0.99)])
    return []
