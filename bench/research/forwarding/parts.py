"""What each part of `scripts/bench forwarding` runs, and the rows it gives."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.figures import Figure
from support.published_forwarding import Published

from research.forwarding import peers
from research.forwarding.routers import (
    Central,
    MatchOnly,
    Overlay,
    Router,
    at_random,
    least_loaded,
    no_forwarding,
    round_robin,
)
from research.forwarding.scenario import SEED, Scenario, scenario
from research.forwarding.service import Machine
from research.forwarding.simulation import Outcome, run
from troth.routing.forwarding.gated import Gated
from troth.routing.prefixes.naming import Naming

SHARED = ("tool use", "documents", "chat")
"""Where prompts have long prefixes in common."""
KNOWN = {
    ("tool use", "published"): (0.80, 1.57),
    ("chat", "published"): (0.47, 8.0),
    ("tool use", "ours"): (0.82, 1.06),
    ("chat", "ours"): (0.84, 2.1),
    ("chat", "sglang-router"): (0.84, 2.1),
}
"""Hit rate and load, max over mean, measured for this project before: the published policy; beside ours the longest
prefix with a load cost, and sglang-router in chat."""
REACH = {"tool use": (0.82, 1.10), "chat": (0.84, 1.10)}


def routers(naming: Naming) -> dict[str, Router]:
    """All that are compared; those named `exact` see every node's load at once and pay no hop."""
    return {
        "no forwarding": Central(no_forwarding, SEED),
        "random": Central(at_random, SEED),
        "round robin": Central(round_robin, SEED),
        "least loaded, exact": Central(least_loaded, SEED),
        "least loaded, by nodes": Overlay(Gated(), naming, SEED, tree=False),
        "published": Overlay(Published(), naming, SEED),
        "published, algorithm 2": Overlay(Published(threshold=1.0), naming, SEED),
        "ours": Overlay(Gated(), naming, SEED),
    }


def simulated(scene: Scenario) -> Iterator[Figure]:
    yield Figure(f"{scene.name}: best hit rate there can be", scene.best, "", note=_described(scene))
    outcomes = {}
    for name, router in routers(scene.naming).items():
        outcomes[name] = result = _run(scene, router)
        yield from _rows(f"{scene.name}, {name}", result, outcomes["no forwarding"], *_beside(scene.name, name))
    least, ours = outcomes["least loaded, exact"].first_p99, outcomes["ours"].first_p99
    by_nodes = outcomes["least loaded, by nodes"].first_p99
    reach = 0.6 if scene.name in SHARED else 1.0
    note = f"{ours:.2f} s and {least:.2f} s; over least loaded by nodes {ours / by_nodes:.2f}"
    yield Figure(f"{scene.name}: P99 TTFT over least loaded, exact", ours / least, "x", None, reach, note)
    if ours > least:
        same = _run(scene, Overlay(Gated(), scene.naming, SEED, hop=0.0, load_interval=0.05)).first_p99
        note = "what is known late, and the hop, are the difference"
        yield Figure(f"{scene.name}: the same, loads told each 50 ms, no hop", same / least, "x", None, None, note)


def ablation(scene: Scenario) -> Iterator[Figure]:
    variants: dict[str, Router] = {
        "neither": Central(no_forwarding, SEED),
        "tree, no load balancing": Overlay(MatchOnly(), scene.naming, SEED),
        "load balancing, no tree": Overlay(Gated(), scene.naming, SEED, tree=False),
        "both": Overlay(Gated(), scene.naming, SEED),
        "both, 4 of 8 candidates drawn": Overlay(Gated(), scene.naming, SEED, drawn=4),
    }
    none = None
    for name, router in variants.items():
        result = _run(scene, router)
        none = none or result
        yield from _rows(f"ablation, {name}", result, none)


def sized(scene: Scenario) -> Iterator[Figure]:
    """One workload on more nodes; groups split at 50."""
    compared = routers(scene.naming)
    yield Figure(
        f"{scene.nodes} nodes, {scene.name}: best hit rate there can be", scene.best, "", note=_described(scene)
    )
    none = None
    for name in ("no forwarding", "round robin", "least loaded, exact", "ours"):
        result = _run(scene, compared[name])
        none = none or result
        yield from _rows(f"{scene.nodes} nodes, {scene.name}, {name}", result, none)


def real_routers(given: dict[str, str | None], machine: Machine, share: float) -> Iterator[Figure]:
    """Real routers in real time, on a part of the requests; ours beside them, simulated, on the same ones."""
    for name, count in (("tool use", int(1_200 * share)), ("chat", int(3_000 * share))):
        scene = scenario(name, count, machine, 8)
        base = _run(scene, Central(no_forwarding, SEED))
        yield Figure(f"peers, {name}: best hit rate there can be", scene.best, "", note=_described(scene))
        for router, path in given.items():
            executable = peers.command(router, path)
            if executable is None:
                print(f"{router} is not installed: pip install {router}, or --{router} PATH; its rows are left out")
                continue
            result = peers.play(executable, router, scene)
            yield from _rows(f"peers, {name}, {router}", result, base, KNOWN.get((name, router)))
        ours = _run(scene, Overlay(Gated(), scene.naming, SEED))
        yield from _rows(f"peers, {name}, ours", ours, base)


def _run(scene: Scenario, router: Router) -> Outcome:
    return run(scene.requests, router, scene.machine, scene.nodes, scene.rate, seed=SEED)


def _beside(workload: str, router: str) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    return KNOWN.get((workload, router)), REACH.get(workload) if router == "ours" else None


def _rows(
    name: str,
    result: Outcome,
    none: Outcome,
    known: tuple[float, float] | None = None,
    reach: tuple[float, float] | None = None,
) -> Iterator[Figure]:
    hit, spread = known or (None, None)
    reach_hit, reach_spread = reach or (None, None)
    rest = f"latency {result.latency_mean:.2f}, P99 {result.latency_p99:.2f} s"
    yield Figure(f"{name}: hit rate", result.hit_rate, "", hit, reach_hit)
    work = f"requests; as time computed {result.work_spread:.2f}"
    yield Figure(f"{name}: load, max over mean", result.spread, "x", spread, reach_spread, work)
    yield Figure(f"{name}: TTFT", result.first_mean, "s", None, None, rest)
    yield Figure(f"{name}: P99 TTFT", result.first_p99, "s")
    yield Figure(f"{name}: throughput over no forwarding", result.throughput / none.throughput, "x")


def _described(scene: Scenario) -> str:
    tokens = sum(request.prompt_tokens for request in scene.requests) // len(scene.requests)
    return f"{len(scene.requests):,} requests of {tokens:,} tokens, {scene.rate:.1f} a second, {scene.nodes} nodes"
