"""Slices beyond the stages: spare machines and spare room go to the layers that fewest host (Parallax, section 3.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from troth.routing.placement.hardware import Capacity
from troth.routing.placement.plan import Slice


def hosts(slices: Iterable[Slice], layers: int) -> list[int]:
    """How many slices hold each layer."""
    steps = [0] * (layers + 1)
    for held in slices:
        steps[held.first] += 1
        steps[held.end] -= 1
    return list(accumulate(steps[:layers]))


def weakest_window(count: Sequence[int], capacity: Capacity) -> tuple[int, int] | None:
    """The slice that a joining machine should host: it holds the first layer that fewest host, and as many more as fit.

    It starts there, or earlier where the model ends first. None if the machine can hold no slice with that layer.
    """
    layers = len(count)
    weakest = min(range(layers), key=lambda layer: (count[layer], layer))
    width = capacity.first if weakest == 0 else capacity.inner
    if width > 0 and weakest + width >= layers:
        if capacity.whole >= layers:
            return 0, layers
        start = max(1, layers - capacity.last)
        if start <= weakest:
            return start, layers
        width = layers - 1 - weakest
    return (weakest, weakest + width) if width > 0 else None


def joined(stages: Sequence[Slice], spare: Mapping[str, Capacity], layers: int) -> list[Slice]:
    """Slices for machines without a stage, the largest first, each by the weakest layer."""
    count = hosts(stages, layers)
    added: list[Slice] = []
    for name, capacity in sorted(spare.items(), key=lambda item: (-item[1].inner, item[0])):
        window = weakest_window(count, capacity)
        if window is not None:
            added.append(Slice(name, *window))
            for layer in range(*window):
                count[layer] += 1
    return added


def widened(slices: Sequence[Slice], capacities: Mapping[str, Capacity], layers: int, wanted: int) -> list[Slice]:
    """The slices, widened by a layer at a time into layers with fewer than `wanted` hosts, while any has room."""
    count = hosts(slices, layers)
    held = list(slices)
    grown = True
    while grown:
        grown = False
        for place, one in enumerate(held):
            wider = _wider(one, capacities[one.name], count, wanted)
            if wider is not None:
                count[wider.first if wider.first < one.first else one.end] += 1
                held[place], grown = wider, True
    return held


def _wider(one: Slice, capacity: Capacity, count: Sequence[int], wanted: int) -> Slice | None:
    layers = len(count)
    options = []
    if one.first > 0 and count[one.first - 1] < wanted:
        options.append((count[one.first - 1], Slice(one.name, one.first - 1, one.end)))
    if one.end < layers and count[one.end] < wanted:
        options.append((count[one.end], Slice(one.name, one.first, one.end + 1)))
    fitting = [
        (hosted, wider)
        for hosted, wider in options
        if wider.end - wider.first <= capacity.of_slice(wider.first, wider.end, layers)
    ]
    return min(fitting, key=lambda option: (option[0], option[1].first))[1] if fitting else None
