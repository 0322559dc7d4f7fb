"""A workload made ready: requests with paths under the array that the Sentry found a round before, and its rate."""

from __future__ import annotations

import random
from dataclasses import dataclass

from research.forwarding.routers import Central, least_loaded
from research.forwarding.service import Machine
from research.forwarding.simulation import run
from research.forwarding.workloads import WORKLOADS, Request, best_hit_rate, prepared
from troth.routing.prefixes.naming import Chunking, Naming, chunking_for
from troth.routing.prefixes.sentry import Sentry

KEY = bytes(range(32))
SEED = 7
HIGH = 0.9
"""Of the rate at which the least-loaded router is saturated."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`rate` in requests a second; `best` is the hit rate of one endless cache."""

    name: str
    requests: list[Request]
    naming: Naming
    machine: Machine
    nodes: int
    rate: float
    best: float


def scenario(name: str, count: int, machine: Machine, nodes: int, chunking: Chunking | None = None) -> Scenario:
    """`count` requests, the same for every router and run."""
    naming = Naming(KEY, chunking or _found(name))
    requests = prepared(name, count, SEED)
    for request in requests:
        request.path = list(naming.path(request.tokens))
    saturated = run(requests, Central(least_loaded, SEED), machine, nodes, 1e9, seed=SEED, pauses=False).throughput
    return Scenario(name, requests, naming, machine, nodes, HIGH * saturated, best_hit_rate(requests))


def _found(name: str) -> Chunking:
    """The array of the round before: other requests about the same texts."""
    sentry = Sentry(random.Random(SEED))  # noqa: S311
    for request in WORKLOADS[name](600, SEED + 100):
        sentry.observe(request.tokens)
    return chunking_for(common.tokens for common in sentry.common())
