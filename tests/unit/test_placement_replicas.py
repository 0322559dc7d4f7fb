"""Where a machine without a stage goes."""

from __future__ import annotations

import pytest

from troth.routing.placement.hardware import Capacity
from troth.routing.placement.plan import Slice
from troth.routing.placement.replicas import hosts, joined, weakest_window, widened


@pytest.mark.parametrize(
    ("count", "capacity", "window"),
    [
        ([2, 1, 1, 2, 2, 2], Capacity(2, 2, 2, 1), (1, 3)),
        ([1, 1, 1, 1, 1, 1], Capacity(4, 3, 3, 2), (0, 3)),
        ([2, 2, 2, 2, 2, 1], Capacity(4, 3, 3, 2), (3, 6)),
        ([2, 2, 1, 2, 2, 2], Capacity(4, 3, 3, 2), (2, 5)),
        ([2, 2, 2, 1, 2, 2], Capacity(4, 3, 3, 2), (3, 6)),
        ([1, 2, 2, 2, 2, 2], Capacity(6, 6, 6, 5), (0, 5)),
        ([2, 1, 2, 2, 2, 2], Capacity(6, 6, 6, 6), (0, 6)),
        ([2, 2, 2, 2, 2, 1], Capacity(4, 3, 0, 0), None),
        ([1, 2, 2, 2, 2, 2], Capacity(4, 0, 4, 0), None),
        ([1], Capacity(1, 1, 1, 0), None),
        ([1], Capacity(1, 1, 1, 1), (0, 1)),
    ],
)
def test_the_weakest_layer_is_held_if_it_can_be(
    count: list[int], capacity: Capacity, window: tuple[int, int] | None
) -> None:
    assert weakest_window(count, capacity) == window


def test_each_machine_that_joins_sees_the_ones_before() -> None:
    spare = {"a": Capacity(2, 2, 2, 2), "b": Capacity(2, 2, 2, 2), "c": Capacity(3, 3, 3, 3)}
    assert joined([], spare, 6) == [Slice("c", 0, 3), Slice("a", 3, 5), Slice("b", 4, 6)]


def test_slices_widen_only_where_hosts_lack_and_charges_leave_room() -> None:
    slices = [Slice("a", 1, 3), Slice("b", 0, 1), Slice("c", 3, 4)]
    room = {"a": Capacity(4, 2, 3, 2), "b": Capacity(1, 1, 1, 1), "c": Capacity(2, 2, 2, 2)}
    wider = widened(slices, room, 4, wanted=2)
    assert wider == [Slice("a", 1, 4), Slice("b", 0, 1), Slice("c", 2, 4)]
    assert hosts(wider, 4) == [1, 1, 2, 2]
    assert widened(slices, room, 4, wanted=1) == slices
