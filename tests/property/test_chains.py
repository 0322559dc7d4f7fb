"""The chosen pipeline is the fastest of those drawn: against a search over all of them that shares no code."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pipeline_worlds import World, worlds

from troth.routing.pipelines.drawn import SegmentDraw
from troth.routing.pipelines.router import Router


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
@given(drawn(), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 30), st.booleans()), max_size=25))
def test_what_is_released_is_all_that_was_taken(
    case: tuple[World, list[SegmentDraw], int], steps: list[tuple[int, int, bool]]
) -> None:
    """However requests come, repeat and go, no host holds more than its cache, and in the end nothing is held."""
    world, draws, _ = case
    router, fresh = Router(world.graph()), Router(world.graph())
    cache = {host.name: host.cache_tokens for host in world.hosts}
    held: dict[str, tuple[tuple[str, ...], int]] = {}
    for number, tokens, starts in steps:
        request = str(number)
        if starts:
            chain = router.choose(request, tokens, draws)
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
    assert router.choose("last", 7, draws).segments == fresh.choose("last", 7, draws).segments
