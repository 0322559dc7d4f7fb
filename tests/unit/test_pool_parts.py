"""The parts of the pool: what is believed, which ends are offered, who may move, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.pool_members import LAYERS, SHAPE, name, report, side

from troth.protocol.types import Segment
from troth.protocol.wire_reports import LinkPart
from troth.routing.pipelines.drawn import SegmentDraw
from troth.routing.placement.plan import Slice
from troth.scheduler.pool.class_pool import CLOSEST_REPORTS, ClassPool, ReportRefused
from troth.scheduler.pool.deciding import layer_loads, variation
from troth.scheduler.pool.measurements import REMEMBERED_SECONDS, UNKNOWN_SECONDS, NodeMeasurements
from troth.scheduler.pool.offering import joined_segments, offered_ends, planned_ends, segments_of, shared_out
from troth.scheduler.pool.orders import HostingOrder, may_move, wanted_hosting
from troth.scheduler.pool.pace import PlacementPace


class Clock:
    """Time as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def pool(clock: Clock, *, placing: bool = True) -> ClassPool:
    return ClassPool(SHAPE, 0, placing=placing, pace=PlacementPace(0.0, 0.0), clock=clock)


# What is believed


def test_a_node_is_believed_to_be_as_slow_as_it_was_seen_and_never_faster() -> None:
    seen = NodeMeasurements()
    assert seen.believed("a", 0.0, 0) == UNKNOWN_SECONDS
    assert seen.believed("a", 0.01, 0) == 0.01
    seen.note_answer("a", 4, 2.0, 0)
    assert seen.believed("a", 1e-9, 0) == 0.5
    assert seen.believed("a", 0.7, 0) == 0.7
    assert seen.believed("a", 1e-9, REMEMBERED_SECONDS + 1) == 1e-9


def test_who_answers_pings_late_to_seem_fast_is_no_cheaper_for_it() -> None:
    honest, staller = NodeMeasurements(), NodeMeasurements()
    staller.note_round_trip("a", 1.0, 0)
    for table in (honest, staller):
        table.note_answer("a", 4, 2.0, 0)
    cost = [table.round_trip("a", 0) + 4 * table.believed("a", 1e-9, 0) for table in (honest, staller)]
    assert cost == [2.0, 2.0]


def test_numbers_that_are_no_times_change_nothing() -> None:
    seen = NodeMeasurements()
    for seconds in (float("nan"), float("inf"), -1.0):
        seen.note_answer("a", 4, seconds, 0)
        seen.note_round_trip("a", seconds, 0)
    seen.note_answer("a", 0, 1.0, 0)
    assert (seen.seen("a", 0), seen.round_trip("a", 0)) == (None, 0.0)


def test_a_node_that_says_it_is_crowded_does_not_seem_faster_for_its_load() -> None:
    clock, draws = Clock(), [SegmentDraw(0, LAYERS, (name(1), name(2)))]
    table = pool(clock)
    table.take(name(1), report(1, 0, LAYERS, running=10**6, decode_nanoseconds=20_000_000))
    table.take(name(2), report(1, 0, LAYERS, decode_nanoseconds=10_000_000))
    assert table.choose("r", 10, draws).names == (name(2),)


# Reports


def test_replayed_overtaken_and_hasty_reports_are_refused_and_change_nothing() -> None:
    clock = Clock()
    table = pool(clock)
    table.take(name(1), report(5, 0, 6))
    for sequence, wait in ((5, 1.0), (4, 1.0), (6, 0.0)):
        clock.now += wait
        before = table.live.hosts(clock.now)
        if wait == 0.0:
            table.take(name(1), report(7, 0, 6))
        with pytest.raises(ReportRefused):
            table.take(name(1), report(sequence, 0, 1))
        assert table.live.hosts(clock.now) == before
    clock.now += CLOSEST_REPORTS
    table.take(name(1), report(8, 0, 1))


def test_a_node_that_leaves_is_gone_at_once_and_does_not_come_back_by_an_old_report() -> None:
    clock = Clock()
    table = pool(clock)
    table.take(name(1), report(1, 0, 6))
    table.take(name(1), report(2, 0, 6, leaving=True))
    assert table.reporting() == ()
    with pytest.raises(ReportRefused):
        table.take(name(1), report(1, 0, 6))
    assert table.members(side({1: (0, 6)})) == []


def test_a_crashed_node_is_gone_when_its_report_expires() -> None:
    clock = Clock()
    table = pool(clock)
    for number in (1, 2):
        table.take(name(number), report(1, 0, 6))
    clock.now += 4
    table.take(name(2), report(2, 0, 6))
    clock.now += 4
    assert [member.name for member in table.members(side({1: (0, 6), 2: (0, 6)}))] == [name(2)]


# Ends


def test_ends_are_the_fewest_that_have_their_parties() -> None:
    halves = [Slice("a", 0, 6), Slice("b", 6, 12), Slice("c", 0, 8), Slice("d", 8, 12), Slice("e", 0, 12)]
    assert planned_ends(halves, LAYERS, 3) is not None
    assert planned_ends(halves, LAYERS, 1) == (12,)
    assert planned_ends(halves, LAYERS, 2) == (8, 12)
    assert planned_ends(halves, LAYERS, 3) == (6, 8, 12)
    assert planned_ends(halves[:1], LAYERS, 1) is None


def test_what_is_offered_has_full_groups_and_does_not_change_without_need() -> None:
    ready = {Segment(0, 6): 3, Segment(6, 12): 2, Segment(0, 12): 1, Segment(6, 8): 9, Segment(8, 12): 9}
    assert offered_ends(ready, LAYERS, 2, [(12,), (6, 8, 12)]) == (6, 8, 12)
    assert offered_ends(ready, LAYERS, 2, [(12,)]) == (6, 12)
    assert offered_ends(ready, LAYERS, 3, []) == (6, 8, 12)
    assert offered_ends(ready, LAYERS, 4, [(6, 12)]) is None


@given(
    groups=some.dictionaries(
        some.tuples(some.integers(0, 7), some.integers(1, 8)).map(lambda edges: (min(edges), max(edges) + 1)),
        some.integers(0, 3),
    ),
    layers=some.integers(1, 9),
)
def test_offered_ends_are_full_from_the_first_layer_to_the_last(
    groups: dict[tuple[int, int], int], layers: int
) -> None:
    ready = {Segment(*span): members for span, members in groups.items()}
    found = offered_ends(ready, layers, 2, [])
    if found is not None:
        assert found[-1] == layers
        assert all(ready[segment] >= 2 for segment in segments_of(found))


def test_a_node_joins_the_segments_inside_its_slice_or_that_of_its_slice() -> None:
    assert joined_segments(0, 6, [(3, 6, 12), (4, 12)]) == (Segment(0, 3), Segment(3, 6), Segment(0, 4))
    assert joined_segments(1, 5, [(6, 12)]) == (Segment(1, 5),)
    assert len(joined_segments(0, 40, [tuple(range(1, 41))])) == 16


def test_where_a_node_may_be_in_two_groups_all_groups_get_their_parties() -> None:
    """Whole nodes hold three segments each: all in the first two would leave the third without anybody."""
    whole = [Slice(name(number), 0, 12) for number in range(1, 7)]
    parts = [Slice(name(7), 0, 4), Slice(name(8), 4, 8), Slice(name(9), 8, 12)]
    ends, nobody = (4, 8, 12), lambda _name: set[Segment]()
    shares = shared_out([*whole, *parts], ends, 5, 2, nobody)
    assert all(len(shares[held.name]) == 2 for held in whole)
    assert [sum(segment in share for share in shares.values()) for segment in segments_of(ends)] == [5, 5, 5]
    assert shared_out([*parts, *whole], ends, 5, 2, nobody) == shares
    # Who is in its groups stays there, and pays for no transaction.
    again = shared_out([*whole, *parts], ends, 5, 2, lambda one: set(shares[one]))
    assert again == shares


def test_on_a_market_a_node_is_told_no_more_groups_than_it_may_be_in() -> None:
    chain = replace(side({1: (0, 12)}), most_groups=2, largely=False)
    found = wanted_hosting(name(1), Slice(name(1), 0, 12), chain, (4, 8, 12), (12,))
    assert found == HostingOrder(0, 12, (Segment(0, 4), Segment(4, 8)))
    share = (Segment(8, 12),)
    found = wanted_hosting(name(1), Slice(name(1), 0, 12), chain, (4, 8, 12), (12,), share=share)
    assert found == HostingOrder(0, 12, (Segment(8, 12), Segment(0, 4)))
    table = pool(Clock())
    table.take(name(1), report(1, 0, 12))
    table.consider(chain)
    order = table.order_for(name(1), chain)
    assert order is None or len(order[1].segments) <= 2


# Moves


def test_a_node_that_is_where_it_should_be_gets_no_order() -> None:
    chain = side({1: (0, 6)})
    assert wanted_hosting(name(1), Slice(name(1), 0, 6), chain, (6, 12), ()) is None
    moved = wanted_hosting(name(1), Slice(name(1), 6, 12), chain, (6, 12), (12,))
    assert moved == HostingOrder(6, 12, (Segment(6, 12),))
    more = wanted_hosting(name(1), Slice(name(1), 0, 6), chain, (3, 6, 12), (6, 12))
    assert more == HostingOrder(0, 6, (Segment(0, 3), Segment(3, 6), Segment(0, 6)))


def test_nobody_moves_away_from_what_is_being_served_until_others_can_do_without_it() -> None:
    chain = side(dict.fromkeys((1, 2, 3), (0, 12)))
    away = HostingOrder(0, 6, (Segment(0, 6),))
    everybody = {name(number) for number in (1, 2, 3)}
    assert may_move(name(1), away, chain, (12,), live=everybody, moving=())
    assert not may_move(name(1), away, chain, (12,), live=everybody, moving={name(2)})
    # Where a group lacks parties anyway there is nothing to break.
    assert may_move(name(1), away, chain, (12,), live={name(1)}, moving=())


def test_orders_go_out_one_by_one_and_not_to_nodes_that_may_not_change() -> None:
    clock = Clock()
    table = pool(clock)
    chain = side(dict.fromkeys(range(4), (0, 6)), kept=[0, 1])
    for number in range(4):
        table.take(name(number), report(1, 0, 6, memory_bytes=6 * SHAPE.layer_bytes))
    table.consider(chain)
    orders = {number: table.order_for(name(number), chain) for number in range(4)}
    assert [number for number, order in orders.items() if order is not None] == [2, 3]
    assert all(order is None or order[1].first == 6 for order in orders.values())
    # The order is repeated with its number until it is done.
    first = orders[2]
    assert table.order_for(name(2), chain) == first
    table.consider(chain)
    assert table.order_for(name(2), chain) == first
    assert table.moves == 2
    done = side({0: (0, 6), 1: (0, 6), 2: (6, 12), 3: (6, 12)}, kept=[0, 1])
    table.consider(done)
    assert [table.order_for(name(number), done) for number in range(4)] == [None] * 4
    assert table.offered == (6, 12)


def test_a_newcomer_is_sent_to_the_weakest_layer_and_leaves_no_trace() -> None:
    clock = Clock()
    table = pool(clock)
    chain = side({1: (0, 6)})
    table.take(name(1), report(1, 0, 6))
    table.consider(chain)
    found = table.window_for(6 * SHAPE.layer_bytes, chain)
    assert found is not None
    assert (found.first, found.end) == (6, 12)
    assert table.window_for(6 * SHAPE.layer_bytes, chain) == found
    assert table.window_for(0, chain) is None
    empty = pool(clock).window_for(6 * SHAPE.layer_bytes, side({}))
    assert empty == HostingOrder(0, 6, (Segment(0, 6),))


def test_probes_go_round_and_stop_when_all_ways_are_known() -> None:
    clock = Clock()
    table = pool(clock)
    for number in range(7):
        table.take(name(number), report(1, 0, 6))
    asked: set[str] = set()
    for sequence in (2, 3):
        clock.now += 1
        probes = table.probes_for(name(3))
        assert name(3) not in probes
        assert not asked & set(probes)
        asked |= set(probes)
        table.take(name(3), report(sequence, 0, 6, links=tuple(LinkPart(probe, 5) for probe in probes)))
    assert asked == {name(number) for number in range(7) if number != 3}
    assert table.probes_for(name(3)) == ()


# Pace


def test_decisions_wait_until_members_have_settled_but_not_for_ever() -> None:
    pace = PlacementPace(settle_seconds=3, calm_seconds=60)
    assert pace.may_decide(frozenset("a"), 0, busy=False) == (False, False)
    assert pace.may_decide(frozenset("ab"), 2, busy=False) == (False, False)
    assert pace.may_decide(frozenset("ab"), 5, busy=False) == (True, True)
    pace.note_move(5)
    assert pace.may_decide(frozenset("ab"), 6, busy=True) == (False, False)
    assert pace.may_decide(frozenset("ab"), 64, busy=False) == (True, False)
    assert pace.may_decide(frozenset("ab"), 65, busy=False) == (True, True)
    # Someone who comes and goes all the time does not keep the others from being placed.
    decided = [pace.may_decide(frozenset("ab" if at % 2 else "abc"), 70 + at, busy=False)[0] for at in range(14)]
    assert any(decided)


def test_loads() -> None:
    even = layer_loads([Slice("a", 0, 2), Slice("b", 2, 4)], {"a": 0.1, "b": 0.1}, 4)
    assert even == [0.2] * 4
    assert variation(even) == 0.0
    assert variation(layer_loads([Slice("a", 0, 2)], {"a": 0.1}, 4)) == float("inf")
    assert variation([]) == 0.0
