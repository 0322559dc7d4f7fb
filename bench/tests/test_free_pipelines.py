"""The free pipeline is the fastest there is: against a search over all (layer, host) pairs that shares no code."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from research.chains import sweep
from research.chains.free_router import FreeRouter
from research.chains.sweep import Layers
from support.pipeline_worlds import World, worlds

from troth.routing.pipelines.graph import Graph, PipelineHost
from troth.routing.placement.plan import Slice

LINES = [(Slice("a", 0, 2), Slice("b", 2, 4)), (Slice("c", 0, 2), Slice("d", 2, 4))]


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
    router = FreeRouter(world.graph())
    router.layout = Layers(world.graph(), narrow=narrow)
    chain = router.choose_free("request", tokens)
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


def test_laid_out_links_and_gathered_ones_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(5)
    hosts = [
        PipelineHost(f"{n:03}", f := int(draw.integers(0, 20)), int(draw.integers(f + 1, 25)), draw.random(), 9)
        for n in range(80)
    ]
    links = draw.random((80, 80))
    laid = FreeRouter(Graph(hosts, links, 24)).choose_free("a", 1)
    monkeypatch.setattr(sweep, "KEPT_ELEMENTS", 0)
    assert FreeRouter(Graph(hosts, links, 24)).choose_free("a", 1) == laid


def test_the_infinities_of_a_wide_pool_are_no_path() -> None:
    hosts = [PipelineHost(f"{number}", number % 2 * 2, number % 2 * 2 + 2, 1.0, 9) for number in range(30)]
    assert "connects" in FreeRouter(Graph(hosts, np.full((30, 30), np.inf), 4)).choose_free("1", 1).reason


def test_a_wide_pool_switches_in_the_middle_of_slices_where_that_pays() -> None:
    hosts = [PipelineHost("near", 0, 4, 2.0, 9), PipelineHost("quick", 0, 4, 1.0, 9, entry_seconds=3.0)]
    hosts += [PipelineHost(f"slow {number}", 0, 4, 9.0, 9) for number in range(8)]
    chain = FreeRouter(Graph(hosts, np.full((10, 10), 0.5), 4)).choose_free("1", 1)
    assert [(part.name, part.first, part.end) for part in chain.segments] == [("near", 0, 1), ("quick", 1, 4)]
    assert chain.seconds == 2.0 + 0.5 + 3.0


def crossed() -> Graph:
    """Two pipelines of two stages; the fastest free pipeline takes one stage of each."""
    hosts = [
        PipelineHost("a", 0, 2, 1.0, 100),
        PipelineHost("b", 2, 4, 3.0, 100),
        PipelineHost("c", 0, 2, 2.5, 100),
        PipelineHost("d", 2, 4, 1.0, 100),
    ]
    return Graph(hosts, np.full((4, 4), 0.01), 4)


def test_whole_pipelines_come_before_faster_mixtures() -> None:
    assert FreeRouter(crossed()).choose_free("1", 10).names == ("a", "d")
    router = FreeRouter(crossed())
    assert router.choose_whole("1", 10, LINES).names == ("c", "d")
    assert "already runs" in router.choose_whole("1", 10, LINES).reason
    assert router.choose_whole("2", 10, LINES).names == ("c", "d")
    assert router.choose_whole("3", 10, LINES).names == ("a", "b")  # load counts


def test_a_free_chain_where_no_pipeline_has_room() -> None:
    router = FreeRouter(crossed())
    router.choose_free("on a and d", 60)
    chain = router.choose_whole("1", 60, LINES)
    assert chain.names == ("c", "b")
    assert router.release("1")
    assert router.choose_whole("2", 101, LINES).reason


def test_a_pipeline_with_a_machine_that_left_is_passed_over() -> None:
    router = FreeRouter(crossed())
    gone = [(Slice("gone", 0, 2), Slice("d", 2, 4)), LINES[0], (Slice("d", 2, 4),), ()]
    assert router.choose_whole("1", 10, gone).names == ("a", "b")
