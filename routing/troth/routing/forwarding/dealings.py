"""What an entry node itself saw of each candidate: requests sent, answered, and how long they took.

How many requests a node took lately, read from the rising counter that it tells with its load.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from troth.routing.prefixes.members import SILENCE
from troth.routing.prefixes.update import LatencyAverage

_MODULUS: Final = 2**32
HALF_LIFE: Final = 60.0
"""Seconds until a request that a node took counts half."""


class TakenCounter:
    """One node's counter as it was heard. `lately` is the caller's to let decay, with what it dealt itself.

    Only rises count. Words arrive out of order, so that a lower value is an older word, unless none as high as before
    was heard for `SILENCE`: then the node restarted, and is counted on from there. The first word counts nothing.
    """

    __slots__ = ("_at", "_last", "lately")

    def __init__(self) -> None:
        self._last: int | None = None
        self._at = 0.0
        self.lately = 0.0

    def hear(self, taken: int, now: float) -> None:
        """The node's word: it took so many since it started, modulo 2³²."""
        ahead = 0 if self._last is None else (taken - self._last) % _MODULUS
        if ahead >= _MODULUS // 2:
            if now - self._at <= SILENCE:
                return
            ahead = 0
        self.lately += ahead
        self._last, self._at = taken % _MODULUS, now


@dataclass(slots=True)
class _Dealing:
    in_flight: int = 0
    unreported: int = 0
    unreported_tokens: int = 0
    dealt: float = 0.0
    at: float = 0.0
    taken: TakenCounter = field(default_factory=TakenCounter)
    latency: LatencyAverage = field(default_factory=LatencyAverage)
    distance: LatencyAverage = field(default_factory=LatencyAverage)


class CandidateDealings:
    """One row per candidate that was dealt with. `now` in seconds, never falling."""

    def __init__(self) -> None:
        self._rows: dict[str, _Dealing] = {}

    def sent(self, name: str, tokens: int, now: float) -> None:
        """A request goes to this node, which has so many of its prompt's tokens to compute."""
        row = self._row(name, now)
        row.in_flight += 1
        row.unreported += 1
        row.unreported_tokens += tokens
        row.dealt += 1

    def ended(self, name: str, now: float, seconds: float | None = None) -> None:
        """A request of ours is not there any more; `seconds` it took, if it was answered."""
        row = self._row(name, now)
        row.in_flight = max(0, row.in_flight - 1)
        if row.unreported > row.in_flight:
            row.unreported, row.unreported_tokens = row.in_flight, 0
        if seconds is not None:
            row.latency.add(seconds)

    def travelled(self, name: str, round_trip: float, now: float) -> None:
        """A message of ours was acknowledged after so many seconds."""
        self._row(name, now).distance.add(round_trip / 2)

    def reported(self, name: str, taken: int | None = None, now: float = 0.0) -> None:
        """The node told its load: what we sent before is in it, and in the count that it says it has `taken`."""
        if taken is not None:
            self._row(name, now).taken.hear(taken, now)
        if name in self._rows:
            self._rows[name].unreported = self._rows[name].unreported_tokens = 0

    def forget(self, name: str) -> None:
        """The node left the group."""
        self._rows.pop(name, None)

    def of(self, name: str, now: float) -> tuple[int, int, int, float, float, float]:
        """(unreported requests, their tokens, in flight, dealt lately, distance, latency) of a node."""
        if name not in self._rows:
            return 0, 0, 0, 0.0, 0.0, 0.0
        row = self._row(name, now)
        return (
            row.unreported,
            row.unreported_tokens,
            row.in_flight,
            row.dealt,
            row.distance.seconds,
            row.latency.seconds,
        )

    def taken(self, name: str, now: float) -> float:
        """Requests that a node took lately, whoever dealt them: by its own word, but no fewer than we dealt it."""
        if name not in self._rows:
            return 0.0
        row = self._row(name, now)
        return max(row.dealt, row.taken.lately + row.unreported)

    def _row(self, name: str, now: float) -> _Dealing:
        row = self._rows.setdefault(name, _Dealing(at=now))
        if now > row.at:
            decay = 0.5 ** ((now - row.at) / HALF_LIFE)
            row.dealt *= decay
            row.taken.lately *= decay
            row.at = now
        return row
