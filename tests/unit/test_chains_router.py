"""Requests under load: who runs where, and what a client or a machine could do to that."""

from __future__ import annotations

import math

import numpy as np
import pytest

from troth.routing.pipelines.drawn import SegmentDraw
from troth.routing.pipelines.graph import Graph, PipelineHost
from troth.routing.pipelines.router import MOST_TOKENS, Router

ANY = [SegmentDraw(0, 4, ("fast", "slow"))]


def twins(**changes: float) -> Graph:
    fast = PipelineHost("fast", 0, 4, 1.0, 100)
    slow = PipelineHost("slow", 0, 4, 1.05, 100)
    return Graph([fast, slow], np.full((2, 2), 0.01), 4)


def test_load_moves_the_next_request_to_the_other_machine() -> None:
    router = Router(twins())
    assert router.choose("1", 10, ANY).names == ("fast",)
    assert router.choose("2", 10, ANY).names == ("slow",)
    assert router.release("1")
    assert router.choose("3", 10, ANY).names == ("fast",)


def test_a_measurement_under_load_is_not_counted_as_load_again() -> None:
    loaded = PipelineHost("fast", 0, 4, 1.1, 100, running=1)
    router = Router(twins())
    router.choose("1", 10, ANY)
    expected = router.layer_seconds()[0]
    router.refresh(Graph([loaded, PipelineHost("slow", 0, 4, 1.05, 100)], np.full((2, 2), 0.01), 4))
    assert math.isclose(router.layer_seconds()[0], expected)


def test_a_request_sent_twice_gets_no_second_chain_and_is_released_once() -> None:
    router = Router(twins())
    assert router.choose("1", 60, ANY).segments
    assert "already runs" in router.choose("1", 60, ANY).reason
    assert router.release("1")
    assert not router.release("1")
    assert router.choose("2", 100, ANY).segments


def test_cache_is_never_given_out_twice_even_after_a_report() -> None:
    router = Router(twins())
    assert [router.choose(str(number), 60, ANY).names for number in range(2)] == [("fast",), ("slow",)]
    router.refresh(twins())
    assert "room" in router.choose("3", 60, ANY).reason
    assert router.choose("4", 40, ANY).segments


@pytest.mark.parametrize("tokens", [-1, MOST_TOKENS + 1, 10**400])
def test_tokens_that_nobody_can_hold_are_refused(tokens: int) -> None:
    assert "cannot hold" in Router(twins()).choose("1", tokens, ANY).reason


def test_running_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("troth.routing.pipelines.router.MOST_REQUESTS", 2)
    router = Router(twins())
    assert [bool(router.choose(str(number), 1, ANY).segments) for number in range(3)] == [True, True, False]
    router.release("0")
    assert router.choose("3", 1, ANY).segments


def test_a_layer_without_host_is_named() -> None:
    graph = Graph([PipelineHost("a", 0, 2, 1.0, 9), PipelineHost("b", 3, 4, 1.0, 9)], np.zeros((2, 2)), 4)
    assert "layer 2" in Router(graph).choose("1", 1, ANY).reason


def test_a_machine_that_left_is_not_chosen_and_its_requests_can_still_end() -> None:
    router = Router(twins())
    router.choose("1", 10, ANY)
    router.refresh(Graph([PipelineHost("slow", 0, 4, 1.05, 100)], np.zeros((1, 1)), 4))
    assert router.choose("2", 10, ANY).names == ("slow",)
    assert router.release("1")


@pytest.mark.parametrize(
    "draws", [[], [SegmentDraw(0, 3, ("fast",))], [SegmentDraw(0, 2, ("fast",)), SegmentDraw(3, 4, ("slow",))]]
)
def test_draws_that_do_not_cover_the_model_give_no_chain(draws: list[SegmentDraw]) -> None:
    assert not Router(twins()).choose("1", 1, draws).segments


def test_of_equal_candidates_the_one_drawn_first_serves() -> None:
    graph = Graph([PipelineHost(name, 0, 4, 1.0, 9) for name in "abc"], np.zeros((3, 3)), 4)
    for order in (("c", "a", "b"), ("b", "c", "a")):
        assert Router(graph).choose("1", 1, [SegmentDraw(0, 4, order)]).names == order[:1]


def test_times_that_are_none_never_win() -> None:
    odd = [
        PipelineHost("a", 0, 4, math.nan, 9),
        PipelineHost("b", 0, 4, -1.0, 9),
        PipelineHost("c", 0, 4, 5.0, 9),
        PipelineHost("d", -1, 9, 0.1, 9),
    ]
    chain = Router(Graph(odd, np.zeros((4, 4)), 4)).choose("1", 1, [SegmentDraw(0, 4, tuple("abcd"))])
    assert (chain.names, chain.seconds) == (("c",), 20.0)
