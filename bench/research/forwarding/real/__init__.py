"""Forwarding by prefix among real vLLM nodes: `scripts/bench forwarding real [options]`.

Processes with an engine and a Group each, on one machine; see the README beside the simulation's parts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from benchmarks.figures import Figure
from benchmarks.weights import weights
from rich.console import Console

from research.forwarding.real.driver import play
from research.forwarding.real.nodes import NodeFailed, Nodes
from research.forwarding.real.outcome import Outcome, figures, outcome, show
from research.forwarding.real.policies import OURS, POLICIES
from research.forwarding.real.processes import running
from research.forwarding.real.workloads import WORKLOADS, best_hit_rate
from troth.node.engine.vllm.installing import require_vllm
from troth.node.errors import ConfigError
from troth.routing.prefixes.announcing import INTERVAL

SEED = 7
MOST_NODES = 8


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """All policies on all workloads, one after the other on the same nodes."""
    chosen = _parser().parse_args(options)
    if not (2 <= chosen.nodes <= MOST_NODES and chosen.requests >= chosen.nodes and chosen.rate > 0):
        _parser().error(f"2 to {MOST_NODES} nodes, at least a request for each, and a rate above 0")
    try:
        require_vllm()
    except ConfigError as error:
        sys.exit(f"scripts/bench forwarding real: {error}")
    try:
        outcomes = asyncio.run(_measured(chosen, running(chosen.nodes, weights().path)))
    except NodeFailed as error:
        sys.exit(f"scripts/bench forwarding real: {error}")
    setting = f"{chosen.nodes} nodes on {os.cpu_count()} cores, which all share"
    title = f"{setting}; {chosen.requests} requests of each workload; (ratio to no forwarding, to round robin)"
    show(outcomes, title, Console(stderr=True, width=200))
    return figures(outcomes, f"all others' updates together; {setting}")


async def _measured(chosen: argparse.Namespace, nodes: AbstractAsyncContextManager[Nodes]) -> list[Outcome]:
    begun, outcomes = time.monotonic(), []

    def say(line: str) -> None:
        print(f"{time.monotonic() - begun:4.0f} s  {line}", file=sys.stderr, flush=True)

    say(f"starting {chosen.nodes} engines")
    async with nodes as running_nodes:
        paces = ", ".join(f"{1e3 * member.pace:.2f}" for member in running_nodes.members)
        say(f"all run; milliseconds of a prompt token: {paces}")
        for workload in chosen.workload or WORKLOADS:
            best = best_hit_rate(WORKLOADS[workload](chosen.requests, chosen.seed))
            say(f"{workload}: {chosen.requests} requests, hit rate of one endless cache {best:.3f}")
            for policy in chosen.policy or POLICIES:
                # What is held is told each `INTERVAL`; bytes are reported of our policy only.
                told = INTERVAL + 1 if policy == OURS else 0.0
                played = await play(
                    running_nodes,
                    workload,
                    policy,
                    count=chosen.requests,
                    rate=chosen.rate,
                    seed=chosen.seed,
                    told=told,
                )
                outcomes.append(found := outcome(played))
                values = ", ".join(f"{name} {value:.3g}" for name, value in found.values.items())
                refusals = sum(reply.refusals for reply in played.replies)
                say(f"{workload}, {policy}: {played.seconds:.0f} s; {values}; {refusals} refusals")
    return outcomes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench forwarding real")
    parser.add_argument("--nodes", type=int, default=3, help=f"2 to {MOST_NODES}")
    parser.add_argument("--requests", type=int, default=40, help="of each workload, for each policy")
    parser.add_argument("--rate", type=float, default=2.0, help="requests a second, all nodes together")
    parser.add_argument("--workload", action="append", choices=tuple(WORKLOADS), help="only these; else all")
    parser.add_argument("--policy", action="append", choices=tuple(POLICIES), help="only these; else all")
    parser.add_argument("--seed", type=int, default=SEED, help="of requests, arrivals and entries")
    return parser
