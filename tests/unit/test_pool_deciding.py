"""Who should host what: joins, leaves, crashes, slow nodes, and nodes that must not flap."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support.atlas import one_region
from support.pool_members import LAYERS, SHAPE, member, name

from troth.routing.placement.hardware import Terms
from troth.routing.placement.plan import Slice
from troth.routing.placement.replicas import hosts
from troth.scheduler.pool.deciding import (
    VARIATION_BOUND,
    PlacementDecision,
    ReportingNode,
    decide,
    layer_loads,
    variation,
)


def decided(members: Sequence[ReportingNode], verifiers: int = 1, *, calm: bool = True) -> PlacementDecision:
    atlas = one_region([one.name for one in members], 0.001)
    return decide(members, SHAPE, Terms(verifiers=verifiers), atlas, calm=calm)


def moved(before: Sequence[ReportingNode], after: PlacementDecision) -> list[str]:
    return [one.name for one in before if after.slice_of(one.name) != one.hosted]


def test_a_pool_that_serves_evenly_stays_as_it_is() -> None:
    members = [member(number, *window, room=6) for number, window in enumerate([(0, 6), (6, 12), (0, 6), (6, 12)])]
    decision = decided(members)
    assert decision == PlacementDecision(tuple(one.hosted for one in members), "")


def test_a_layer_that_lost_its_hosts_is_covered_again_with_the_fewest_moves() -> None:
    # Both hosts of the second half are gone; four machines hold the first one.
    members = [member(number, 0, 6, room=6) for number in range(4)]
    decision = decided(members, calm=False)
    assert min(hosts(decision.slices, LAYERS)) == 2
    assert len(moved(members, decision)) == 2
    assert decision.reason == "layer 6 has 0 hosts, 2 are needed"


def test_what_cannot_be_had_is_said_and_nobody_moves_for_nothing() -> None:
    members = [member(0, 0, 6, room=6), member(1, 6, 12, room=6)]
    decision = decided(members)
    assert (decision.reason, moved(members, decision)) == ("", [])
    assert "verifiers" in decision.lacking


def test_a_slow_node_gets_fewer_layers_but_only_in_calm_times() -> None:
    members = [
        member(0, 0, 6, seconds=0.2), member(1, 6, 12), member(2, 0, 6, seconds=0.2), member(3, 6, 12),
    ]  # fmt: skip
    loads = layer_loads([one.hosted for one in members], {one.name: one.layer_seconds for one in members}, LAYERS)
    assert variation(loads) > VARIATION_BOUND
    assert decided(members, calm=False).reason == ""
    decision = decided(members)
    assert decision.reason.startswith("the layers' loads vary")
    slow, quick = (decision.slice_of(name(number)) for number in (0, 1))
    assert slow is not None
    assert quick is not None
    assert slow.end - slow.first < quick.end - quick.first or decision.slice_of(name(1)) == Slice(name(1), 0, LAYERS)


def test_nodes_that_could_form_one_more_pipeline_do() -> None:
    members = [member(number, 0, 6, room=6) for number in range(3)]
    members += [member(number, 6, 12, room=6) for number in range(3, 5)]
    members += [member(5, 0, 6, room=6)]
    decision = decided(members)
    assert decision.reason == "every layer can have 3 hosts, 2 are the fewest now"
    assert len(moved(members, decision)) == 1
    assert moved(members, decided(members, calm=False)) == []


def test_nodes_whose_operators_did_not_agree_stay_and_are_counted() -> None:
    members = [member(0, 0, 6, room=6, movable=False), member(1, 0, 6, room=6, movable=False)]
    members += [member(number, 0, 6, room=6) for number in (2, 3)]
    decision = decided(members, calm=False)
    assert moved(members, decision) == [name(2), name(3)]
    assert min(hosts(decision.slices, LAYERS)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("calm", [False, True])
@settings(max_examples=60)
@given(
    pool=some.lists(
        some.tuples(
            some.integers(0, LAYERS - 1), some.integers(1, LAYERS), some.integers(0, LAYERS),
            some.sampled_from([0.0, 0.01, 0.2, float("inf")]), some.booleans(),
        ),
        max_size=9,
    ),
    verifiers=some.integers(0, 4),
)  # fmt: skip
def test_decisions_never_make_it_worse_and_settle(
    calm: bool, pool: list[tuple[int, int, int, float, bool]], verifiers: int
) -> None:
    """No input raises; who did not agree stays; the fewest hosts never become fewer; a second look moves nobody."""
    members = [
        member(number, first, min(LAYERS, first + width), room=room, seconds=seconds, movable=movable)
        for number, (first, width, room, seconds, movable) in enumerate(pool)
    ]
    decision = decided(members, verifiers, calm=calm)
    assert decision == decided(members[::-1], verifiers, calm=calm)
    assert all(decision.slice_of(one.name) == one.hosted for one in members if not one.movable)
    before = min(hosts([one.hosted for one in members], LAYERS))
    after = min(hosts(decision.slices, LAYERS))
    assert after >= min(before, verifiers + 1)
    settled = [
        ReportingNode(one.name, one.memory_bytes, one.layer_seconds, held.first, held.end, one.movable)
        for one in members
        if (held := decision.slice_of(one.name)) is not None
    ]
    assert moved(settled, decided(settled, verifiers, calm=calm)) == []
