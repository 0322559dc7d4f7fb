"""The pool's simulator against hand counts and queueing theory; what every scheduler in it must keep to."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

import pytest
from benchmarks.trace import OUTPUT_MEAN, PROMPT_MEAN, Request, sharegpt
from research.pool.estimate import best_pipeline, estimate_of
from research.pool.ours import Ours
from research.pool.pipelines import Pipelines, even_split, fits
from research.pool.results import part, result_of
from research.pool.serving import Hop, Scheduler
from research.pool.simulation import Outcome, Simulation
from research.pool.static_partition import PartitionSearch
from research.pool.swarm import Swarm
from research.pool.world import QWEN_BF16, Load, Model, Site, World, union
from research.pool.world import testbed as paper_testbed
from support.machine_pools import RTX_4090, Gpu

from troth.routing.placement.hardware import ModelShape

# A layer of 800 MB read at 80 % of 1,000 GB/s takes 1 ms; a token computes in a layer for 0.016 ms of 50 TFLOPS.
GPU = Gpu("plain", 80, 1000, 100)
PLAIN = Model("plain", ModelShape(2, 800_000_000, 4096, 0, 0), 1000)
ONE = World("one", PLAIN, (Site("a", GPU, 0),))
TWO = World("two", PLAIN, (Site("a", GPU, 0), Site("b", GPU, 1)), across=(0.010, 1e9))
WHOLE = ((Hop(0, 0, 2),),)
HALVES = ((Hop(0, 0, 1), Hop(1, 1, 2)),)

SCHEDULERS: dict[str, Callable[[World], Scheduler]] = {
    "ours": Ours,
    "even split": even_split,
    "swarm": Swarm,
    "static": lambda world: PartitionSearch(world, generations=3).built(
        PartitionSearch(world, generations=3).ranking[0]
    ),
}


def played(world: World, routes: tuple[tuple[Hop, ...], ...], requests: list[Request], most: int = 256) -> Outcome:
    return Simulation(world, Pipelines(world, "fixed", routes, [1.0] * len(routes)), most).run(requests)


def test_a_request_on_one_machine_by_hand() -> None:
    ended = played(ONE, WHOLE, [Request(0, 5.0, 1000, 3)]).ended[0]
    # The prompt computes: 1 ms for the batch and 1,000 tokens in two layers. Each token after it reads: 1 ms and 2 ms,
    # and 1,001 and 1,002 tokens of cache.
    prompt = 0.001 + 1000 * 2 * 0.000_016
    tokens = 2 * (0.001 + 0.002) + (1001 + 1002) * 2 * 4096 / 800e9
    assert ended.first_token == pytest.approx(5.0 + prompt, rel=1e-9)
    assert ended.last_token == pytest.approx(5.0 + prompt + tokens, rel=1e-9)


def test_links_by_hand() -> None:
    ended = played(TWO, HALVES, [Request(0, 0.0, 1000, 2)]).ended[0]
    stage = 0.001 + 1000 * 0.000_016
    state = 0.010 + 1000 * 2000 / 1e9  # a prompt's states across, 2,000 bytes a token
    token = 2 * 0.002 + 2 * 1001 * 4096 / 800e9 + (0.010 + 4 / 1e9) + (0.010 + 2000 / 1e9)
    assert ended.first_token == pytest.approx(2 * stage + state, rel=1e-9)
    assert ended.last_token == pytest.approx(2 * stage + state + token, rel=1e-9)


def test_a_batch_reads_the_weights_once() -> None:
    together = played(ONE, WHOLE, [Request(number, 0.0, 1, 2) for number in range(9)])
    # The first is served at once, the other eight as one batch behind it; then they take turns.
    assert together.batches == 4
    assert len(together.ended) == 9


@pytest.mark.slow
@pytest.mark.parametrize("busy", [0.3, 0.7])
def test_waiting_as_in_theory(busy: float) -> None:
    """One request at a time, all alike, arriving at random: the mean wait is that of M/D/1 (Pollaczek, Khinchine)."""
    service = 0.001 + 1000 * 2 * 0.000_016
    arrivals = [request.arrival for request in sharegpt(20_000, busy / service, 1)]
    outcome = played(ONE, WHOLE, [Request(n, at, 1000, 1) for n, at in enumerate(arrivals)], most=1)
    # Room in the cache never binds: the queue stays short.
    waits = [ended.last_token - ended.request.arrival - service for ended in outcome.ended]
    assert fmean(waits) == pytest.approx(busy * service / (2 * (1 - busy)), rel=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("leaving", [(), ((6.0, 4),)], ids=["all stay", "one leaves"])
def test_every_request_ends_once_or_is_dropped(name: str, leaving: tuple[tuple[float, int], ...]) -> None:
    world = paper_testbed(QWEN_BF16)
    trace = sharegpt(40, 4.0, 3)
    simulation = Simulation(world, SCHEDULERS[name](world))
    outcome = simulation.run(trace, leaving)
    numbers = [ended.request.number for ended in outcome.ended] + [request.number for request in outcome.dropped]
    assert sorted(numbers) == list(range(40))
    assert not outcome.dropped
    assert all(ended.request.arrival < ended.first_token <= ended.last_token for ended in outcome.ended)
    assert 0 < outcome.fullest <= 1
    assert not any(machine.held or machine.running for machine in simulation._machines)
    again = Simulation(world, SCHEDULERS[name](world)).run(trace, leaving)
    assert again.ended == outcome.ended


def test_what_no_chain_can_hold_is_dropped() -> None:
    world = paper_testbed(QWEN_BF16)
    outcome = Simulation(world, Ours(world)).run([Request(0, 0.0, 10**7, 5), Request(1, 1.0, 5, 5)])
    assert [request.number for request in outcome.dropped] == [0]
    assert [ended.request.number for ended in outcome.ended] == [1]


def test_a_request_that_loses_its_chain_goes_on_where_it_was() -> None:
    world = World("pair", PLAIN, (Site("a", GPU, 0), Site("b", GPU, 0)))
    routes = ((Hop(0, 0, 2),), (Hop(1, 0, 2),))
    scheduler = Pipelines(world, "fixed", routes, [1.0, 1.0])
    request = Request(0, 0.0, 1000, 100)
    outcome = Simulation(world, scheduler).run([request], [(0.100, 0)])
    stayed = played(ONE, WHOLE, [request]).ended[0]
    assert outcome.moved == 1
    assert outcome.ended[0].first_token == stayed.first_token
    # What it had by then is computed once more, and a token that was on its way.
    assert 0.030 < outcome.ended[0].last_token - stayed.last_token < 0.045


def test_no_machine_is_left() -> None:
    outcome = Simulation(ONE, Pipelines(ONE, "fixed", WHOLE, [1.0])).run([Request(0, 0.0, 10, 2000)], [(0.5, 0)])
    assert not outcome.ended
    assert len(outcome.dropped) == 1


def test_ours_places_again_when_that_serves_more() -> None:
    world = paper_testbed(QWEN_BF16)
    ours = Ours(world)
    assert len(ours.placement.pipelines) == 2
    changed = ours.left(4, 0.0)
    assert len(ours.placement.pipelines) == 2
    assert 4 not in changed
    assert ours.loading(0.0)
    assert not ours.loading(60.0)


def test_traces_have_the_published_means() -> None:
    trace = sharegpt(20_000, 2.0, 0)
    # Cut off at 2,048 tokens, the means are a little lower.
    assert fmean(request.prompt for request in trace) == pytest.approx(PROMPT_MEAN, rel=0.05)
    assert fmean(request.output for request in trace) == pytest.approx(OUTPUT_MEAN, rel=0.05)
    assert trace[-1].arrival == pytest.approx(10_000, rel=0.05)
    assert [request.output for request in sharegpt(50, 9.0, 0)] == [request.output for request in trace[:50]]


def test_union_of_spans() -> None:
    assert union([]) == 0
    assert union([(0, 4), (2, 6), (8, 9), (0, 1)]) == 7


def test_roofline_takes_the_larger_of_reading_and_computing() -> None:
    assert ONE.batch_seconds(0, Load([(0, 2)], 0, 2, 0)) == pytest.approx(0.003)
    assert ONE.batch_seconds(0, Load([(0, 2)], 0, 2_000, 0)) == pytest.approx(0.033)


def test_layouts_fit_and_beat_shares_by_speed() -> None:
    world = paper_testbed(QWEN_BF16)
    best = best_pipeline(world, [0, 1, 3])
    assert best is not None
    assert fits(world, best.route)
    thirds = (Hop(0, 0, 25), Hop(3, 25, 39), Hop(1, 39, 64))
    assert best.rate >= estimate_of(world, thirds).rate
    assert best_pipeline(world, [0, 3]) is None  # 28 and 20 layers of 64


def test_swarm_covers_all_blocks_within_memory() -> None:
    world = paper_testbed(QWEN_BF16)
    slices = Swarm(world).slices
    assert union(list(slices.values())) == 64
    assert all(end - first <= world.capacity(place).inner for place, (first, end) in slices.items())


def test_even_split_is_even() -> None:
    alike = World("alike", QWEN_BF16, tuple(Site(f"{number}", RTX_4090, 0) for number in range(8)))
    routes = even_split(alike).routes
    assert [len(route) for route in routes] == [4, 4]
    assert {hop.end - hop.first for route in routes for hop in route} == {16}


def test_results_of_a_run() -> None:
    outcome = played(ONE, WHOLE, [Request(number, float(number), 1000, 1) for number in range(10)])
    result = result_of(outcome)
    assert result.throughput == pytest.approx(9 / 8.033)
    assert result.latency == pytest.approx(0.033)
    assert part([3, 1, 2], 0.5) == 2
    assert part([3, 1, 2], 0.99) == 3
