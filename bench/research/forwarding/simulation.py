"""One run: requests arrive, a router places them, engines serve them; what came of it."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from research.forwarding.clock import Clock
from research.forwarding.engine import Engine, Job
from research.forwarding.routers import Router
from research.forwarding.service import Machine
from research.forwarding.workloads import Request


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run, in seconds. `spread`: requests of the busiest node over the mean; `throughput`: requests a second."""

    hit_rate: float
    first_mean: float
    first_p99: float
    latency_mean: float
    latency_p99: float
    spread: float
    work_spread: float
    throughput: float


def run(
    requests: Sequence[Request],
    router: Router,
    machine: Machine,
    nodes: int,
    rate: float,
    *,
    seed: int,
    pauses: bool = True,
) -> Outcome:
    """Serve these requests. `rate`: arrivals a second, Poisson; a session's next turn waits for the answer."""
    clock, jobs, at = Clock(), [], {}
    left = len(requests)
    follows = {request.after.number: request for request in requests if request.after is not None}

    def arrive(request: Request) -> None:
        asked = clock.now
        before = at.get(request.after.number) if request.after is not None else None
        node, seconds = router.route(request, before)
        at[request.number] = node
        clock.at(asked + seconds, lambda: engines[node].submit(Job(request, asked, clock.now, node)))

    def finished(job: Job) -> None:
        nonlocal left
        left -= 1
        jobs.append(job)
        router.finished(job)
        following = follows.get(job.request.number)
        if following is not None:
            clock.at(clock.now + (following.pause if pauses else 0.0), lambda: arrive(following))

    engines = [
        Engine(machine, clock, lambda event, node=node: router.told(node, event), finished) for node in range(nodes)
    ]
    router.start(engines, clock)
    first = [request for request in requests if request.after is None]
    gaps = np.random.default_rng(seed).exponential(len(requests) / len(first) / rate, len(first))
    for request, when in zip(first, np.cumsum(gaps).tolist(), strict=True):
        clock.at(when, lambda request=request: arrive(request))
    clock.run(lambda: left > 0)
    return outcome(jobs, engines)


def outcome(jobs: Sequence[Job], engines: Sequence[Engine], start: float = 0.0) -> Outcome:
    """The figures of jobs that are done, of a run that began at `start`."""
    firsts = [job.first - job.asked for job in jobs]
    latencies = [job.done - job.asked for job in jobs]
    served = Counter(job.node for job in jobs)
    busy = [engine.busy for engine in engines]
    return Outcome(
        sum(job.hit for job in jobs) / sum(job.request.prompt_tokens for job in jobs),
        statistics.fmean(firsts),
        float(np.percentile(firsts, 99)),
        statistics.fmean(latencies),
        float(np.percentile(latencies, 99)),
        max(served.values()) / (len(jobs) / len(engines)),
        max(busy) / statistics.fmean(busy),
        len(jobs) / (max(job.done for job in jobs) - start),
    )
