"""What a pipeline is chosen over: machines with their slices, and the time from each to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


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
    """Hosts, sorted by name. Immutable by custom: everything a choice needs that is no load.

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
        self.uncovered = next((layer for layer in range(self.layers) if not self._is_hosted(layer)), None)
        """The first layer that nobody hosts."""

    def _is_hosted(self, layer: int) -> bool:
        return any(host.first <= layer < host.end for host in self.hosts)


def times(seconds: Floats) -> Floats:
    """A copy in which everything that is no time (negative, not a number) is infinite."""
    return np.where(seconds >= 0, seconds, np.inf)


def relayed(hosts: Sequence[PipelineHost]) -> Floats:
    """Links where the scheduler carries states from segment to segment, as it does: out of one, into the next."""
    out = np.array([host.exit_seconds for host in hosts], dtype=np.float64)
    into = np.array([host.entry_seconds for host in hosts], dtype=np.float64)
    return out[:, None] + into[None, :]
