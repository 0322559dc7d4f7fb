"""The pool end to end on ShareGPT-like traces, against even split, greedy swarm and static partition."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.figures import Figure
from benchmarks.trace import Request, sharegpt

from research.pool.ours import Ours
from research.pool.pipelines import even_split
from research.pool.results import Result, result_of
from research.pool.serving import Scheduler
from research.pool.simulation import BATCH_REQUESTS, Simulation
from research.pool.static_partition import PartitionSearch
from research.pool.swarm import Swarm
from research.pool.world import QWEN_BF16, QWEN_FP8, World, mixed, testbed

PAPER_THROUGHPUT, PAPER_LATENCY = 1.58, 1.66
"""Parallax over HexGen on average, by the paper's own measurement of both systems."""
REQUESTS, REQUESTS_IF_QUICK = 500, 60
STATIC, SERIAL = "static partition", "static partition, one request a batch"
FREE = "Troth, free pipelines"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A world, how many requests come a second, and the machines that leave: seconds, place in the world."""

    world: World
    rate: float
    leaving: tuple[tuple[float, int], ...] = ()

    @property
    def name(self) -> str:
        """As rows call it."""
        gone = ", one leaves" if self.leaving else ""
        return f"{self.world.name}, {self.rate:g} requests a second{gone}"


def scenarios(quick: bool) -> list[Scenario]:
    """The paper's testbed at its rates and below; larger pools; the testbed when a machine leaves."""
    bfloat, small = testbed(QWEN_BF16), testbed(QWEN_FP8)
    leaving = Scenario(bfloat, 4, ((20.0, 4),))
    if quick:
        return [Scenario(bfloat, 4), leaving]
    found = [Scenario(bfloat, rate) for rate in (1, 4, 16)] + [Scenario(small, rate) for rate in (4, 16)]
    for world in (mixed("4 types", 24, 0), mixed("7 types", 28, 0)):
        found += [Scenario(world, rate) for rate in (2, 8)]
    return [*found, leaving]


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """All rows. Options: `--quick`, `--requests N` in each trace, `--seed N` of the traces."""
    parser = argparse.ArgumentParser(prog="scripts/bench pool", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the testbed only, few requests")
    parser.add_argument("--requests", type=int, help=f"requests of a trace; else {REQUESTS}")
    parser.add_argument("--seed", type=int, default=0, help="of lengths and arrivals")
    arguments = parser.parse_args(options)
    count = arguments.requests or (REQUESTS_IF_QUICK if arguments.quick else REQUESTS)
    figures, searches, ratios = list[Figure](), dict[str, PartitionSearch](), list[tuple[float, float]]()
    for scenario in scenarios(arguments.quick):
        world = scenario.world
        if world.name not in searches:
            print(f"{world.name}: searching for the static partition", file=sys.stderr, flush=True)
            searches[world.name] = PartitionSearch(world)
        results = compare(scenario, sharegpt(count, scenario.rate, arguments.seed), searches[world.name])
        figures += _rows(scenario, results)
        if not scenario.leaving:
            ratios.append(_ratios(results))
    return figures + _average(ratios)


def compare(scenario: Scenario, trace: Sequence[Request], search: PartitionSearch) -> dict[str, Result]:
    """The same trace through every scheduler."""
    world = scenario.world
    makers: dict[str, Callable[[], Scheduler]] = {
        Ours.name: lambda: Ours(world),
        FREE: lambda: Ours(world, whole=False),
        STATIC: lambda: search.pipelines(scenario.rate),
        SERIAL: lambda: search.pipelines(scenario.rate),
        "even split": lambda: even_split(world),
        Swarm.name: lambda: Swarm(world),
    }
    results = {}
    for name, make in makers.items():
        print(f"{scenario.name}: {name}", file=sys.stderr, flush=True)
        most = 1 if name == SERIAL else BATCH_REQUESTS
        results[name] = result_of(Simulation(world, make(), most).run(trace, scenario.leaving))
    return results


def _rows(scenario: Scenario, results: dict[str, Result]) -> Iterator[Figure]:
    for name, result in results.items():
        note = f"{result.ended} ended, {result.dropped} dropped"
        if result.moved:
            note += f", {result.moved} went on with another chain"
        yield Figure(f"{scenario.name}: {name}: throughput", result.throughput, "1/s", note=note)
        times = f"P50 {result.median:.1f}, P99 {result.tail:.1f}, first token {result.first_token:.2f} s"
        yield Figure(f"{scenario.name}: {name}: mean latency", result.latency, "s", note=times)
    throughput, latency = _ratios(results)
    name = f"{scenario.name}: Troth against {STATIC}"
    yield Figure(f"{name}: throughput", throughput, "×", PAPER_THROUGHPUT, PAPER_THROUGHPUT)
    yield Figure(f"{name}: mean latency", latency, "÷", PAPER_LATENCY, PAPER_LATENCY)


def _ratios(results: dict[str, Result], peer: str = STATIC) -> tuple[float, float]:
    """Ours over the peer's throughput, the peer's over our mean latency."""
    ours, other = results[Ours.name], results[peer]
    return ours.throughput / other.throughput, other.latency / ours.latency


def _average(ratios: Sequence[tuple[float, float]]) -> list[Figure]:
    note = f"mean of {len(ratios)} traces in which nobody leaves"
    throughput, latency = (fmean(column) for column in zip(*ratios, strict=True))
    return [
        Figure(f"Troth against {STATIC}: throughput", throughput, "×", PAPER_THROUGHPUT, PAPER_THROUGHPUT, note),
        Figure(f"Troth against {STATIC}: mean latency", latency, "÷", PAPER_LATENCY, PAPER_LATENCY, note),
    ]
