"""The chosen chain is the fastest there is: against a search over all (layer, host) pairs that shares no code."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troth.routing.pipelines import graph as graphs
from troth.routing.pipelines.drawn import SegmentDraw
from troth.routing.pipelines.graph import Graph, PipelineHost
from troth.routing.pipelines.router import Router

seconds = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 5.0, 9.0, math.inf]) | st.floats(0, 10)


@dataclass(frozen=True)
class World:
    hosts: list[PipelineHost]
    links: list[list[float]]
    layers: int

    def graph(self) -> Graph:
        return Graph(self.hosts, np.array(self.links).reshape(len(self.hosts), len(self.hosts)), self.layers)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Some pipelines with cuts of their own, some slices more, and mostly everything reachable."""
    layers = draw(st.integers(1, 6))
    slices = []
    for _ in range(draw(st.integers(0, 3))):
        cuts = sorted({0, layers, *draw(st.lists(st.integers(0, layers), max_size=2))})
        slices += list(pairwise(cuts))
    for _ in range(draw(st.integers(0, 3))):
        first = draw(st.integers(0, layers - 1))
        slices.append((first, draw(st.integers(first + 1, layers))))
    hosts = [
        PipelineHost(
            f"{n:02}", *held, draw(seconds), draw(st.sampled_from([9, 20, 30])), 0, draw(seconds), draw(seconds)
        )
        for n, held in enumerate(slices)
    ]
    return World(hosts, [[draw(seconds) for _ in hosts] for _ in hosts], layers)


def fastest(world: World, tokens: int) -> float:
    """Bellman and Ford over (layer, host), by repetition until nothing changes."""
    able = [host.cache_tokens >= tokens for host in world.hosts]
    states = [(x, h) for h, host in enumerate(world.hosts) if able[h] for x in range(host.first, host.end)]
    states.sort()
    best = dict.fromkeys(states, math.inf)
    changed = True
    while changed:
        changed = False
        for x, h in states:
            ways = [world.hosts[h].entry_seconds] if x == 0 else []
            ways += [
                best[x - 1, g] + (0 if g == h else world.links[g][h])
                for g in range(len(world.hosts))
                if (x - 1, g) in best
            ]
            cost = min(ways, default=math.inf) + world.hosts[h].layer_seconds
            if cost < best[x, h]:
                best[x, h], changed = cost, True
    return min((best[x, h] + world.hosts[h].exit_seconds for x, h in states if x == world.layers - 1), default=math.inf)


@pytest.mark.slow
@settings(max_examples=120)
@given(worlds(), st.integers(0, 24), st.booleans())
def test_the_free_chain_is_the_fastest(world: World, tokens: int, narrow: bool) -> None:
    graph = world.graph()
    graph.narrow = narrow
    graph.lay_out()
    chain = Router(graph).choose("request", tokens)
    best = fastest(world, tokens)
    if math.isinf(best):
        assert not chain.segments
        assert chain.reason
        return
    assert math.isclose(chain.seconds, best, rel_tol=1e-9, abs_tol=1e-12)
    hosts = {host.name: (place, host) for place, host in enumerate(world.hosts)}
    assert [part.first for part in chain.segments] == [0, *(part.end for part in chain.segments[:-1])]
    assert chain.segments[-1].end == world.layers
    total = hosts[chain.segments[0].name][1].entry_seconds + hosts[chain.segments[-1].name][1].exit_seconds
    for part in chain.segments:
        host = hosts[part.name][1]
        assert host.first <= part.first < part.end <= host.end
        assert host.cache_tokens >= tokens
        total += (part.end - part.first) * host.layer_seconds
    for one, other in pairwise(chain.segments):
        assert one.name != other.name
        total += world.links[hosts[one.name][0]][hosts[other.name][0]]
    assert math.isclose(total, chain.seconds, rel_tol=1e-9, abs_tol=1e-12)


@st.composite
def drawn(draw: st.DrawFn) -> tuple[World, list[SegmentDraw], int]:
    world = draw(worlds())
    cuts = sorted({0, world.layers, *draw(st.lists(st.integers(0, world.layers), max_size=3))})
    draws = []
    for first, end in pairwise(cuts):
        able = [host.name for host in world.hosts if host.first <= first and end <= host.end]
        others = [host.name for host in world.hosts] + ["stranger"]
        names = st.lists(st.sampled_from(able or others), max_size=4) | st.lists(st.sampled_from(others), max_size=2)
        draws.append(SegmentDraw(first, end, tuple(draw(names))))
    return world, draws, draw(st.integers(0, 12))


@pytest.mark.slow
@settings(max_examples=120)
@given(drawn())
def test_the_chain_of_drawn_candidates_is_the_fastest(case: tuple[World, list[SegmentDraw], int]) -> None:
    world, draws, tokens = case
    graph = world.graph()
    chain = Router(graph).choose("request", tokens, draws)
    places = {host.name: place for place, host in enumerate(world.hosts)}
    best = math.inf
    for names in product(*(draw.candidates for draw in draws)):
        if any(name not in places for name in names):
            continue
        path = [places[name] for name in names]
        hosts = [world.hosts[place] for place in path]
        if all(
            h.first <= d.first and d.end <= h.end and h.cache_tokens >= tokens
            for h, d in zip(hosts, draws, strict=True)
        ):
            computing = sum((d.end - d.first) * h.layer_seconds for h, d in zip(hosts, draws, strict=True))
            moving = sum(0 if g == h else world.links[g][h] for g, h in pairwise(path))
            best = min(best, hosts[0].entry_seconds + computing + moving + hosts[-1].exit_seconds)
    if math.isinf(best) or graph.uncovered is not None:
        assert not chain.segments
        assert chain.reason
        return
    assert math.isclose(chain.seconds, best, rel_tol=1e-9, abs_tol=1e-12)
    assert [(part.first, part.end) for part in chain.segments] == [(draw.first, draw.end) for draw in draws]
    assert all(part.name in draw.candidates for part, draw in zip(chain.segments, draws, strict=True))


@pytest.mark.slow
@settings(max_examples=60)
@given(worlds(), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 30), st.booleans()), max_size=25))
def test_what_is_released_is_all_that_was_taken(world: World, steps: list[tuple[int, int, bool]]) -> None:
    """However requests come, repeat and go, no host holds more than its cache, and in the end nothing is held."""
    router, fresh = Router(world.graph()), Router(world.graph())
    cache = {host.name: host.cache_tokens for host in world.hosts}
    held: dict[str, tuple[tuple[str, ...], int]] = {}
    for number, tokens, starts in steps:
        request = str(number)
        if starts:
            chain = router.choose(request, tokens)
            if chain.segments:
                assert request not in held
                held[request] = chain.names, tokens
        else:
            assert router.release(request) == (held.pop(request, None) is not None)
        for name, room in cache.items():
            assert sum(tokens for names, tokens in held.values() if name in names) <= room
        router.refresh(world.graph())
    for request in held:
        assert router.release(request)
    assert np.array_equal(router.layer_seconds(), fresh.layer_seconds())
    assert router.choose("last", 7).segments == fresh.choose("last", 7).segments


def test_laid_out_links_and_gathered_ones_agree(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    draw = np.random.default_rng(5)
    hosts = [
        PipelineHost(f"{n:03}", f := int(draw.integers(0, 20)), int(draw.integers(f + 1, 25)), draw.random(), 9)
        for n in range(80)
    ]
    links = draw.random((80, 80))
    laid = Router(Graph(hosts, links, 24)).choose("a", 1)
    monkeypatch.setattr(graphs, "KEPT_ELEMENTS", 0)
    assert Router(Graph(hosts, links, 24)).choose("a", 1) == laid
