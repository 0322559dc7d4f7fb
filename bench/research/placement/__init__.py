"""Phase 1: milliseconds, pipelines over the bound that memory sets, failures; two regions; the published scheduler."""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.figures import Figure
from support.atlas import one_region
from support.linear_bound import least_groups, most_by_linear_programme
from support.machine_pools import DENSE_80, GPT_OSS, POOLS, SHAPES, gpus_of, machines_of

from research.placement.published import Published
from troth.routing.placement.hardware import Machine, ModelShape, Terms, capacity_of
from troth.routing.placement.placing import place
from troth.routing.placement.pool import pool_of
from troth.routing.placement.regions import regions_of

SIZES = (4, 16, 64, 256, 1024)
PAPER = {4: 0.10, 256: 8.55}
"""Milliseconds, section 4.3: one region, machines not described."""
REACH = {"homogeneous": 8.0, "4 types": 30.0, "7 types": 30.0}
SEEDS, SEEDS_IF_LARGE = 200, 20
VERIFIERS = 3
PUBLISHED_GREEDY = 0.43
"""Its pipelines over the bound, mixed, 256 machines, as measured for this project before."""


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """All rows. Options: `--seeds N` for every size, `--parallax PATH` to the published scheduler's `src` folder."""
    parser = argparse.ArgumentParser(prog="scripts/bench placement", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, help=f"pools per row; else {SEEDS}, and {SEEDS_IF_LARGE} of 1,024 machines"
    )
    parser.add_argument("--parallax", type=Path, help="src folder of the published scheduler")
    arguments = parser.parse_args(options)
    figures = []
    for name, shape in SHAPES.items():
        for size in SIZES if shape is GPT_OSS else (256, 1024):
            seeds = arguments.seeds or (SEEDS_IF_LARGE if size > 256 else SEEDS)
            for pool in POOLS:
                figures += _row(f"{name}, {size} machines, {pool}", pool, size, shape, seeds)
    figures.append(_against_relaxation(arguments.seeds or SEEDS))
    figures += _two_regions()
    if arguments.parallax is not None:
        figures += _published(Published(arguments.parallax), arguments.seeds or SEEDS)
    return figures


def _row(name: str, pool: str, size: int, shape: ModelShape, seeds: int) -> Iterator[Figure]:
    spent, built, bounds, failures, tightest = [], 0, 0, 0, 0
    for seed in range(seeds):
        machines = machines_of(gpus_of(pool, size, seed), shape)
        atlas = one_region([machine.name for machine in machines], 0.010)
        start = time.perf_counter()
        placement = place(machines, shape, Terms(verifiers=VERIFIERS), atlas)
        spent.append((time.perf_counter() - start) * 1e3)
        bound = memory_bound(machines, shape)
        built, bounds, tightest = built + len(placement.pipelines), bounds + bound, tightest + placement.pipelines_bound
        failures += not placement.pipelines and placement.pipelines_bound > 0
    note = f"worst {max(spent):.1f} ms of {seeds} pools, {failures} failed"
    yield Figure(
        f"{name}: time",
        statistics.median(spent),
        "ms",
        PAPER.get(size) if shape is GPT_OSS else None,
        REACH[pool] if size == 256 else None,
        note,
    )
    if bounds:
        yield Figure(
            f"{name}: pipelines over memory",
            100 * built / bounds,
            "%",
            100 * PUBLISHED_GREEDY if size == 256 and pool != "homogeneous" and shape is GPT_OSS else None,
            96 if size == 256 and pool != "homogeneous" else None,
            f"{100 * built / tightest:.1f} % of the bound that no plan exceeds" if tightest else "",
        )


def _against_relaxation(seeds: int) -> Figure:
    """What 80 layers on 4 types, where the ends cost most, leave to be built: by a linear programme over all groups."""
    built = allowed = memory = 0
    for seed in range(seeds):
        machines = machines_of(gpus_of("4 types", 256, seed), DENSE_80)
        capacities = [capacity_of(machine.memory_bytes, DENSE_80, 0) for machine in machines]
        pool = pool_of(capacities, DENSE_80.layers)
        atlas = one_region([machine.name for machine in machines], 0.010)
        built += len(place(machines, DENSE_80, Terms(verifiers=VERIFIERS), atlas).pipelines)
        allowed += most_by_linear_programme(pool, least_groups(pool))
        memory += memory_bound(machines, DENSE_80)
    note = f"no plan exceeds {100 * allowed / memory:.2f} % of memory; built {100 * built / memory:.2f} %"
    return Figure("80 layers, 256 machines, 4 types: over the relaxation", 100 * built / allowed, "%", note=note)


def memory_bound(machines: Sequence[Machine], shape: ModelShape) -> int:
    """The sum of layers that fit over the layers of the model, rounded down: looser than what a placement reports."""
    return sum(capacity_of(machine.memory_bytes, shape, 0).inner for machine in machines) // shape.layers


def _two_regions() -> list[Figure]:
    """Machines join in turn from two sites: 1 ms inside, 80 ms across."""
    machines = machines_of(gpus_of("homogeneous", 24, 0))
    site = {machine.name: number % 2 for number, machine in enumerate(machines)}
    links = {(a, b): 0.001 if site[a] == site[b] else 0.080 for a in site for b in site if a != b}
    placement = place(machines, GPT_OSS, Terms(verifiers=VERIFIERS), regions_of(site, links))
    hops = [
        [links[one.name, other.name] for one, other in zip(line.stages, line.stages[1:], strict=False)]
        for line in placement.pipelines
    ]
    count = f"{len(placement.pipelines)} pipelines of {len(machines)} machines"
    return [
        Figure("two regions: crossings of the worst pipeline", max(map(_crossings, hops)), "", 3, 0, f"peer; {count}"),
        Figure("two regions: link time of the worst pipeline", 1e3 * max(map(sum, hops)), "ms", 240, None, "peer"),
    ]


def _crossings(hops: Sequence[float]) -> int:
    return sum(seconds > 0.040 for seconds in hops)


def _published(published: Published, seeds: int) -> Iterator[Figure]:
    logging.disable(logging.WARNING)  # It logs a warning for each machine, which would be most of its time.
    for pool in POOLS:
        for size in (16, 64, 256):
            results = [(gpus_of(pool, size, seed), seed) for seed in range(seeds)]
            placed = [published.place(gpus, GPT_OSS.layers) for gpus, _ in results]
            bounds = sum(memory_bound(machines_of(gpus), GPT_OSS) for gpus, _ in results)
            failed = sum(not pipelines for _, pipelines in placed)
            name = f"published greedy, {size} machines, {pool}"
            time_spent = statistics.median(spent for spent, _ in placed)
            yield Figure(f"{name}: time", time_spent, "ms", note=f"{failed} of {seeds} failed")
            if bounds:
                built = sum(pipelines for _, pipelines in placed)
                yield Figure(f"{name}: pipelines over memory", 100 * built / bounds, "%")
