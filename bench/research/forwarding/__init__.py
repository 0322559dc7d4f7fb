"""Forwarding by prefix, simulated and beside real routers: `scripts/bench forwarding [PART …] [options]`.

`scripts/bench forwarding real [options]` is another benchmark, with vLLM nodes; it has options of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.figures import Figure

from research.forwarding import costs, parts, peers
from research.forwarding.scenario import scenario
from research.forwarding.service import MACHINES, Machine

PARTS = ("simulation", "ablation", "sizes", "costs", "peers")
REQUESTS = {"documents": 1_500, "mixed": 1_250, "tool use": 6_000, "chat": 4_000, "coding": 1_000}
"""Of each workload on eight nodes."""
SIZED = {64: 4_000, 32: 2_000, 256: 8_000}
"""Nodes and requests of `sizes`: tool use and chat."""
ABLATION = 1_500


@dataclass(frozen=True, slots=True)
class Job:
    """One workload on one network, with all that is compared on it: a process of its own."""

    part: str
    workload: str
    requests: int
    nodes: int
    machine: Machine


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """The figures of some parts, or of all; after `real` those of vLLM nodes."""
    if options and options[0] == "real":
        from research.forwarding import real

        return real.measure(options[1:])
    chosen = _parser().parse_args(options)
    if unknown := set(chosen.parts) - set(PARTS):
        _parser().error(f"no such part: {', '.join(sorted(unknown))}")
    wanted, machine = chosen.parts or PARTS, MACHINES[chosen.machine]
    sizes = tuple(SIZED) if chosen.full else (64, 32)
    if chosen.sizes:
        sizes = tuple(int(size) for size in chosen.sizes.split(","))
    figures = [*costs.times(), *costs.bytes_sent()] if "costs" in wanted else []  # Alone, since it counts microseconds.
    jobs = [job for job in _jobs(chosen.workload, sizes, machine, chosen.share) if job.part in wanted]
    # Forked, since `scripts/bench` is no module that a new process could import.
    with multiprocessing.get_context("fork").Pool(chosen.jobs) as pool:
        for rows in pool.imap(_rows_of, jobs):
            figures += rows
    if "peers" in wanted:
        executables = {name: getattr(chosen, name.replace("-", "_")) for name in peers.ROUTERS}
        figures += parts.real_routers(executables, machine, chosen.share if chosen.full else 0.4 * chosen.share)
    return figures


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench forwarding", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; else all")
    parser.add_argument("--workload", action="append", choices=tuple(REQUESTS), help="only these; else all")
    parser.add_argument("--machine", choices=tuple(MACHINES), default="a100", help="the service model")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of requests")
    parser.add_argument("--full", action="store_true", help="also 256 nodes, and all requests to the real routers")
    parser.add_argument("--sizes", help=f"numbers of nodes of `sizes`, of {', '.join(map(str, SIZED))}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    for name in peers.ROUTERS:
        parser.add_argument(f"--{name}", metavar="PATH", help=f"executable of {name}; else the one on PATH")
    return parser


def _jobs(only: Sequence[str] | None, sizes: Sequence[int], machine: Machine, share: float) -> list[Job]:
    workloads = [name for name in REQUESTS if not only or name in only]
    jobs = [Job("simulation", name, int(REQUESTS[name] * share), 8, machine) for name in workloads]
    for size in sizes:
        count = int(SIZED.get(size, 100 * size) * share)
        jobs += [Job("sizes", name, count, size, machine) for name in ("tool use", "chat") if name in workloads]
    return [*jobs, Job("ablation", "tool use", int(ABLATION * share), 8, machine)]


def _rows_of(job: Job) -> list[Figure]:
    """Runs in a process of its own."""
    start = time.perf_counter()
    scene = scenario(job.workload, job.requests, job.machine, job.nodes)
    run = {"simulation": parts.simulated, "sizes": parts.sized, "ablation": parts.ablation}[job.part]
    rows = list(run(scene))
    seconds = time.perf_counter() - start
    lines = [f"{row.name}: {row.value:.4g} {row.unit}  {row.note}" for row in rows]
    said = [f"{job.part}, {job.workload}, {job.nodes} nodes: {seconds:.0f} s", *lines]
    print(*said, sep="\n", file=sys.stderr, flush=True)  # The table comes at the end.
    return rows
