"""How loaded this node is: what its engine says, how long its requests took, what a prompt token costs it."""

from __future__ import annotations

import math
from collections.abc import Callable

from troth.node.engine.interface import Engine, WholeEngine
from troth.node.pool.meter import Meter
from troth.protocol.wire_group import LoadPart
from troth.routing.prefixes.update import LatencyAverage, NodeLoad

_COUNT = 0xFFFF
_WORD = 0xFFFF_FFFF
LONGEST_LATENCY = 600_000_000
"""Microseconds, as the wire has it."""
SLOWEST_PACE = 10**12
"""Nanoseconds."""


class Loads:
    """This node's own load.

    Args:
        sessions: requests here now, of an engine that does not batch by itself.
        meter: seconds per layer and position, as the engine measured them.
        capacity: requests that are computed at once.
    """

    def __init__(self, engine: Engine, sessions: Callable[[], int], meter: Meter, capacity: int) -> None:
        self._engine, self._sessions, self._meter, self._capacity = engine, sessions, meter, capacity
        self._latency = LatencyAverage()
        self._prompt = LatencyAverage()  # tokens: the same moving average

    def served(self, seconds: float) -> None:
        """A request was served here, from the first word about it to its last token."""
        self._latency.add(seconds)

    def prompted(self, tokens: int) -> None:
        """A prompt of so many tokens was seen: about as long are those that wait."""
        self._prompt.add(tokens)

    def now(self, taken: int) -> NodeLoad:
        """The load now; `taken` requests since the start."""
        queued, running, missed = self._requests()
        return NodeLoad(
            latency=self._latency.seconds,
            queued=queued,
            running=running,
            capacity=self._capacity,
            # Before the first prompt it is taken to be as slow as one position alone, which was measured at the start.
            pace=(self._meter.prefill_seconds or self._meter.decode_seconds) * self._engine.layers,
            pending=int(queued * self._prompt.seconds * missed),
            taken=taken,
        )

    def _requests(self) -> tuple[int, int, float]:
        """Requests that wait and that run, and the share of prompts that the cache does not have."""
        if isinstance(self._engine, WholeEngine):
            load = self._engine.load
            missed = 1 - load.cached_tokens / load.prompt_tokens if load.prompt_tokens > 0 else 1.0
            return load.waiting, load.running, min(1.0, max(0.0, missed))
        sessions = self._sessions()
        return max(0, sessions - self._capacity), min(sessions, self._capacity), 1.0


def load_part(load: NodeLoad) -> LoadPart:
    """A load as it travels: rounded, and cut to what fits."""
    return LoadPart(
        latency=_bounded(load.latency * 1e6, LONGEST_LATENCY),
        queued=_bounded(load.queued, _COUNT),
        running=_bounded(load.running, _COUNT),
        capacity=max(1, _bounded(load.capacity, _COUNT)),
        pace=_bounded(load.pace * 1e9, SLOWEST_PACE),
        pending=_bounded(load.pending, _WORD),
        taken=load.taken & _WORD,
    )


def load_of(part: LoadPart) -> NodeLoad:
    """The load that travelled."""
    return NodeLoad(
        part.latency * 1e-6, part.queued, part.running, part.capacity, part.pace * 1e-9, part.pending, part.taken
    )


def _bounded(value: float, most: int) -> int:
    return round(min(most, max(0.0, value))) if math.isfinite(value) else 0
