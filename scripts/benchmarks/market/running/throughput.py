"""How many orders a second one scheduler takes from admission to result, and how much of a core each costs it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.figures import Figure
from benchmarks.market.running.load import PROMPT, WRITTEN, Load, Sent
from benchmarks.market.running.processor import processor_seconds
from benchmarks.market.running.toy_network import SLOW_BLOCK, ToyNetwork

WARM_UP = 64
REACH = 200


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run: wall seconds, and processor seconds by process."""

    orders: list[Sent]
    seconds: float
    spent: dict[str, float]


async def run(load: Load, count: int, progress: Callable[[int], None] = lambda _done: None) -> Run:
    """Send ``count`` orders that were signed before."""
    network = load.network
    watched = {"scheduler": [network.scheduler], "nodes": network.nodes, "chain": [network.chain], "clients": [None]}
    orders = load.signed(count)
    before = {name: sum(map(processor_seconds, children)) for name, children in watched.items()}
    seconds = await load.send(orders, progress)
    spent = {name: sum(map(processor_seconds, children)) - before[name] for name, children in watched.items()}
    return Run(orders, seconds, spent)


async def measure(network: ToyNetwork, count: int, concurrent: int, report: Callable[[str], None]) -> list[Figure]:
    """Two rows: what the wall clock says on this machine, and what the scheduler's own core would allow."""
    network.mine_every(SLOW_BLOCK)
    load = Load(network, concurrent=concurrent, reveals=False)
    await run(load, WARM_UP)

    def progress(done: int) -> None:
        if done % 200 == 0:
            report(f"{done:,} of {count:,} orders")

    done = await run(load, count, progress)
    failed = [one.failure for one in done.orders if one.failure]
    if failed:
        raise RuntimeError(f"{len(failed)} of {count} orders failed, the first one: {failed[0]}")
    return _figures(done, count, concurrent)


def _figures(done: Run, count: int, concurrent: int) -> list[Figure]:
    times = sorted(one.seconds for one in done.orders)
    each = {name: 1e3 * seconds / count for name, seconds in done.spent.items()}
    shares = ", ".join(f"{name} {milliseconds:.1f} ms" for name, milliseconds in each.items())
    note = (
        f"{count:,} orders of {PROMPT} tokens read and {WRITTEN} written, {concurrent} at once; from order to result "
        f"{statistics.median(times):.2f} s (99 % within {times[int(len(times) * 0.99)]:.2f} s); processors an order: "
    )
    return [
        Figure(
            "orders a second, one scheduler, from admission to result: scheduler, nodes, clients and chain together",
            count / done.seconds,
            "1/s",
            None,
            REACH,
            note + shares,
        ),
        Figure(
            "orders a second that one core of the scheduler's would allow",
            1e3 / each["scheduler"],
            "1/s",
            None,
            REACH,
            f"{each['scheduler']:.1f} ms of processor an order, in all its threads",
        ),
    ]
