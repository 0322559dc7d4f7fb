"""What a pipeline is chosen over: machines with their slices, and the time from each to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

KEPT_ELEMENTS = 1 << 22
"""Link times that are laid out per layer in advance, 32 MiB; beyond that they are gathered on each choice."""
FEW = 6
"""Hosts per layer up to which plain Python beats arrays."""


@dataclass(frozen=True, slots=True)
class PipelineHost:
    """A machine that hosts `[first, end)`: seconds per layer when it was measured, tokens of cache in each layer.

    `running` is how many requests it served when it was measured. `entry_seconds` and `exit_seconds` are the link from
    the scheduler and back.
    """

    name: str
    first: int
    end: int
    layer_seconds: float
    cache_tokens: int
    running: int = 0
    entry_seconds: float = 0.0
    exit_seconds: float = 0.0


class Graph:
    """Hosts, sorted by name, laid out by layer. Immutable by custom: everything a choice needs that is no load.

    `links[g, h]` are the seconds from host g to host h in the order of `hosts` given; infinite where no link is known.
    A host whose slice lies outside the model is left out, and a time that is none is infinite.
    """

    def __init__(self, hosts: Sequence[PipelineHost], links: Floats, layers: int) -> None:
        order = sorted(
            (place for place, host in enumerate(hosts) if 0 <= host.first < host.end <= layers),
            key=lambda place: hosts[place].name,
        )
        self.layers = max(0, layers)
        self.hosts = tuple(hosts[place] for place in order)
        self.place = {host.name: place for place, host in enumerate(self.hosts)}
        self.links = times(links[np.ix_(order, order)])
        np.fill_diagonal(self.links, 0.0)
        self.seconds = times(np.array([host.layer_seconds for host in self.hosts], dtype=np.float64))
        self.entry = times(np.array([host.entry_seconds for host in self.hosts], dtype=np.float64))
        self.exit = times(np.array([host.exit_seconds for host in self.hosts], dtype=np.float64))
        self.members = _members(self.hosts, self.layers)
        self.uncovered = next((layer for layer, held in enumerate(self.members) if not held.size), None)
        self.narrow = max((held.size for held in self.members), default=0) <= FEW
        self.flat = np.concatenate(self.members) if self.members else np.empty(0, dtype=np.intp)
        self.offsets = np.cumsum([0, *(held.size for held in self.members)]).tolist()
        self.lay_out()

    def lay_out(self) -> None:
        """Arrange the links as the sweep reads them: lists where `narrow`, else an array for each layer."""
        self._arrivals, self.nearest = self._laid_out()
        self.rows: list[list[float]] = self.links.tolist() if self.narrow else []
        self.member_lists: list[list[int]] = [held.tolist() for held in self.members] if self.narrow else []

    def arrivals(self, layer: int) -> Floats:
        """Seconds into each host of `layer` (rows) from each host of the layer before (columns)."""
        if self._arrivals:
            return self._arrivals[layer]
        return self._between(self.members[layer - 1], self.members[layer])

    def _between(self, before: Places, after: Places) -> Floats:
        return np.ascontiguousarray(self.links[np.ix_(before, after)].T)

    def _laid_out(self) -> tuple[list[Floats], list[Floats | None]]:
        """Arrivals per layer, one array for all layers that the same hosts pass among themselves; and for those the
        least seconds into each host from any other."""
        keys = [(before.tobytes(), after.tobytes()) for before, after in pairwise(self.members)]
        pairs = dict(zip(keys, pairwise(self.members), strict=True))
        elements = sum(before.size * after.size for before, after in pairs.values())
        if self.uncovered is not None or self.narrow or elements > KEPT_ELEMENTS:
            return [], [None] * self.layers
        laid = {key: self._between(*pair) for key, pair in pairs.items()}
        nearest = {key: _off_diagonal_minimum(laid[key]) for key in pairs if key[0] == key[1]}
        return [np.empty((0, 0)), *(laid[key] for key in keys)], [None, *(nearest.get(key) for key in keys)]


def _off_diagonal_minimum(square: Floats) -> Floats:
    others = square.copy()
    np.fill_diagonal(others, np.inf)
    least: Floats = others.min(axis=1)
    return least


def times(seconds: Floats) -> Floats:
    """A copy in which everything that is no time (negative, not a number) is infinite."""
    return np.where(seconds >= 0, seconds, np.inf)


def relayed(hosts: Sequence[PipelineHost]) -> Floats:
    """Links where the scheduler carries states from segment to segment, as it does: out of one, into the next."""
    out = np.array([host.exit_seconds for host in hosts], dtype=np.float64)
    into = np.array([host.entry_seconds for host in hosts], dtype=np.float64)
    return out[:, None] + into[None, :]


def _members(hosts: Sequence[PipelineHost], layers: int) -> list[Places]:
    held: list[list[int]] = [[] for _ in range(layers)]
    for place, host in enumerate(hosts):
        for layer in range(host.first, host.end):
            held[layer].append(place)
    return [np.array(places, dtype=np.intp) for places in held]
