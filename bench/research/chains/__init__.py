"""Phase 2: milliseconds per request on placements of phase 1, and the chosen chain against the fastest there is."""

from __future__ import annotations

import argparse
import logging
import math
import random
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.figures import Figure
from support.atlas import one_region
from support.machine_pools import GPT_OSS, gpus_of, machines_of

from research.chains.free_router import FreeRouter
from research.chains.published import PublishedRouter
from troth.routing.pipelines.drawn import SegmentDraw
from troth.routing.pipelines.graph import Floats, Graph, PipelineHost
from troth.routing.pipelines.router import Route
from troth.routing.placement.hardware import Terms
from troth.routing.placement.placing import place
from troth.routing.placement.plan import Placement

SIZES = (4, 16, 64, 256, 1024)
PAPER = {4: 0.0136, 256: 6.6339}
"""Milliseconds a request, section 4.3."""
PUBLISHED_WORST = 1.28
"""Chosen over best path of the published code at most, as measured for this project before."""
POOLS = ("homogeneous", "7 types")
REQUESTS, RUNNING, CHECKED = 100, 20, 10
TOKENS = 1024
CANDIDATES = 4
SEEDS = 5


@dataclass(frozen=True, slots=True)
class World:
    """One placed pool, its hosts in the order of `links`."""

    placement: Placement
    hosts: list[PipelineHost]
    links: Floats


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """All rows. Options: `--seeds N` pools a row, `--parallax PATH` to the published scheduler's `src` folder."""
    parser = argparse.ArgumentParser(prog="scripts/bench chains", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="pools per row")
    parser.add_argument("--parallax", type=Path, help="src folder of the published scheduler")
    arguments = parser.parse_args(options)
    figures = [figure for size in SIZES for pool in POOLS for figure in _rows(size, pool, arguments.seeds)]
    if arguments.parallax is not None:
        figures += _published(PublishedRouter(arguments.parallax), arguments.seeds)
    return figures


def world_of(size: int, pool: str, seed: int) -> World:
    """Machines at random places, 10 to 200 ms apart by distance, as the published tests have them."""
    machines = machines_of(gpus_of(pool, size, seed))
    seconds = {machine.name: machine.layer_seconds for machine in machines}
    placement = place(machines, GPT_OSS, Terms(), one_region(seconds, 0.1))
    draw = random.Random(seed)  # noqa: S311 - reproducible places, no secret
    hosts = [
        PipelineHost(held.name, held.first, held.end, seconds[held.name] * draw.uniform(0.8, 1.3), 64 * TOKENS)
        for held in placement.hosted
    ]
    spots = np.array([(draw.random(), draw.random()) for _ in hosts]).reshape(len(hosts), 2)
    apart = np.hypot(*np.moveaxis(spots[:, None] - spots[None], 2, 0))
    return World(placement, hosts, 0.010 + 0.190 * apart / max(1e-9, apart.max(initial=0.0)))


def _rows(size: int, pool: str, seeds: int) -> Iterator[Figure]:
    spent, drawn, ratios = [], [], []
    for seed in range(seeds):
        world = world_of(size, pool, seed)
        if not world.placement.pipelines:
            continue
        graph = Graph(world.hosts, world.links, GPT_OSS.layers)
        spent += _choose(FreeRouter(graph), None, world, ratios if size <= 256 else None)
        drawn += _choose(FreeRouter(graph), _draws(world, seed), world, None)
    if not spent:
        return
    reach = 1.0 if size == 256 else None
    name = f"{size} machines, {pool}"
    yield Figure(f"{name}: free pipeline", statistics.median(spent), "ms", PAPER.get(size), reach, _worst(spent))
    yield Figure(f"{name}: {CANDIDATES} drawn a segment", statistics.median(drawn), "ms", None, reach, _worst(drawn))
    if ratios:
        yield Figure(
            f"{name}: chosen over best, worst", max(ratios), "", PUBLISHED_WORST, 1.0, f"{len(ratios)} requests"
        )


def _published(router: PublishedRouter, seeds: int) -> Iterator[Figure]:
    """One choice on each idle pool, by whole slices, against the best chain over layers."""
    logging.disable(logging.WARNING)
    for pool in POOLS:
        for size in (16, 64, 256):
            spent, ratios = [], []
            for seed in range(seeds):
                world = world_of(size, pool, seed)
                if not world.placement.pipelines:
                    continue
                nodes = router.nodes(world.hosts, world.links, GPT_OSS.layers)
                took, seconds = router.choose(nodes, world.hosts, world.links, GPT_OSS.layers)
                idle = [host.layer_seconds for host in sorted(world.hosts, key=lambda host: host.name)]
                spent.append(took)
                ratios.append(seconds / best_seconds(world, idle))
            if spent:
                name = f"published router, {size} machines, {pool}"
                yield Figure(f"{name}: time", statistics.median(spent), "ms", note=_worst(spent))
                yield Figure(f"{name}: chosen over best, worst", max(ratios), "", note=f"{len(ratios)} requests")


def _worst(spent: Sequence[float]) -> str:
    return f"worst {max(spent):.2f} ms of {len(spent)}"


def _choose(
    router: FreeRouter, draws: list[SegmentDraw] | None, world: World, ratios: list[float] | None
) -> list[float]:
    """Requests one after the other, of which the last twenty run."""
    spent, running = [], deque[str]()
    for number in range(REQUESTS):
        seconds = router.layer_seconds().tolist()
        start = time.perf_counter()
        name = str(number)
        chain = router.choose_free(name, TOKENS) if draws is None else router.choose(name, TOKENS, draws)
        spent.append((time.perf_counter() - start) * 1e3)
        if ratios is not None and number % (REQUESTS // CHECKED) == 0:
            ratios.append(chain.seconds / best_seconds(world, seconds))
        _check(chain)
        running.append(name)
        if len(running) > RUNNING:
            router.release(running.popleft())
    return spent


def _check(chain: Route) -> None:
    if not chain.segments:
        raise SystemExit(f"No chain: {chain.reason}")


def _draws(world: World, seed: int) -> list[SegmentDraw]:
    """Candidates among all machines whose slice covers a stage of the first pipeline."""
    draw = random.Random(seed)  # noqa: S311 - a benchmark's draw, not a VRF's
    draws = []
    for stage in world.placement.pipelines[0].stages:
        able = [host.name for host in world.hosts if host.first <= stage.first and stage.end <= host.end]
        draws.append(SegmentDraw(stage.first, stage.end, tuple(draw.sample(able, min(CANDIDATES, len(able))))))
    return draws


def best_seconds(world: World, seconds: Sequence[float]) -> float:
    """The fastest path over (layer, host), by loops that share no code with the scheduler. `seconds` by sorted name."""
    order = sorted(range(len(world.hosts)), key=lambda place: world.hosts[place].name)
    cost = {place: seconds[number] for number, place in enumerate(order)}
    links = world.links.tolist()
    reached: dict[int, float] = {}
    for layer in range(GPT_OSS.layers):
        hosting = [place for place, host in enumerate(world.hosts) if host.first <= layer < host.end]
        if layer:
            reached = {
                place: cost[place]
                + min(so_far + (links[before][place] if before != place else 0) for before, so_far in reached.items())
                for place in hosting
            }
        else:
            reached = {place: cost[place] for place in hosting}
    return min(reached.values(), default=math.inf)
