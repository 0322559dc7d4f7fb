"""The benchmark's own parts: the engine's cache and clock, the workloads, and that runs are the same again."""

from __future__ import annotations

import pytest
from research.forwarding import PARTS, _jobs, measure
from research.forwarding.clock import Clock
from research.forwarding.engine import Cache, Engine, Job
from research.forwarding.routers import Central, Overlay, least_loaded
from research.forwarding.scenario import scenario
from research.forwarding.service import A100, Machine
from research.forwarding.simulation import run
from research.forwarding.workloads import best_hit_rate, prepared

from troth.routing.forwarding.gated import Gated
from troth.routing.prefixes.local_blocks import BlocksRemoved, BlocksStored, KvEvent
from troth.routing.prefixes.naming import BLOCK


def test_the_cache_reuses_whole_blocks_evicts_the_least_used_and_says_so() -> None:
    told: list[KvEvent] = []
    first, second = prepared("chat", 8, 1)[0], prepared("coding", 1, 1)[0]
    cache = Cache(len(first.blocks) + 2, told.append)
    assert cache.match(first) == 0
    cache.store(first, 0, len(first.blocks))
    assert cache.match(first) == (first.prompt_tokens - 1) // BLOCK * BLOCK
    cache.store(second, 0, 5)
    removed = [event for event in told if isinstance(event, BlocksRemoved)]
    assert [len(event.hashes) for event in removed] == [3]
    assert set(removed[0].hashes) == set(first.blocks[-3:])  # Its end goes first: what is shared stays.
    assert all(len(event.tokens) == 128 * len(event.hashes) for event in told if isinstance(event, BlocksStored))


def test_a_request_takes_the_time_of_its_tokens() -> None:
    machine, clock, done = Machine("m", 0.001, 0.01, 0.0, 0.0, step_tokens=10_000), Clock(), list[Job]()
    engine = Engine(machine, clock, lambda event: None, done.append)
    request = prepared("coding", 1, 1)[0]
    engine.submit(Job(request, 0.0, 0.0, 0))
    engine.submit(Job(request, 0.0, 0.0, 0))
    clock.run(lambda: True)
    one, other = done
    assert one.first == pytest.approx(0.01 + 0.001 * request.prompt_tokens)
    assert other.hit == (request.prompt_tokens - 1) // BLOCK * BLOCK
    assert other.first == pytest.approx(one.first + 0.01 + 0.001 * (request.prompt_tokens - other.hit))
    assert one.done == pytest.approx(other.first + 0.01 * (request.output_tokens - 2))


@pytest.mark.slow
def test_a_run_is_the_same_again_and_prefixes_beat_load_alone() -> None:
    scene = scenario("tool use", 150, A100, 4)

    def ours(**terms: float) -> object:
        return run(scene.requests, Overlay(Gated(), scene.naming, 1), A100, 4, scene.rate, seed=1)

    first = ours()
    assert ours() == first
    least = run(scene.requests, Central(least_loaded, 1), A100, 4, scene.rate, seed=1)
    assert least.hit_rate < first.hit_rate <= best_hit_rate(scene.requests)  # type: ignore[attr-defined]


def test_all_parts_are_run_but_for_those_that_were_not_asked_for() -> None:
    jobs = _jobs(None, (32, 64), A100, 1.0)
    assert {job.part for job in jobs} | {"costs", "peers"} == set(PARTS)
    assert {(job.workload, job.nodes) for job in jobs if job.part == "sizes"} == {
        (name, size) for name in ("tool use", "chat") for size in (32, 64)
    }
    assert {job.workload for job in _jobs(["chat"], (), A100, 1.0) if job.part == "simulation"} == {"chat"}
    with pytest.raises(SystemExit):
        measure(["no such part"])
