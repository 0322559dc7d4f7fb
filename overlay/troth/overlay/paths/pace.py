"""How often a pool tries, and what it waits for: bounded also when everything fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from troth.overlay.circuits.descriptors import RelayDescriptor
from troth.overlay.relay.limits import TokenBucket
from troth.transport.errors import CircuitFailed

FORGOTTEN_SECONDS = 86_400.0
"""After which a guard's failures count no more, if nothing was heard of it since."""


@dataclass(frozen=True, slots=True)
class CircuitPace:
    """Times in seconds.

    Attributes:
        at_once: circuits being built.
        rate, burst: builds a second, and how many may be saved up.
        first, longest: the wait after a failure, doubled up to `longest` while all builds fail; also per guard.
        avoid: how long a relay that failed is left out.
        ping, answer: how often an unused circuit is tested, and how long its proxy may take.
        build: for one circuit.
        look: how often the list is looked at.
    """

    at_once: int = 3
    rate: float = 0.5
    burst: float = 8.0
    first: float = 0.5
    longest: float = 60.0
    avoid: float = 600.0
    ping: float = 30.0
    answer: float = 10.0
    build: float = 15.0
    look: float = 10.0


class Attempts:
    """When the next build may begin, and which relays are left out now."""

    def __init__(self, pace: CircuitPace, random: Random, clock: Callable[[], float]) -> None:
        self._pace, self._random, self._clock = pace, random, clock
        self._bucket = TokenBucket(pace.rate, pace.burst, clock())
        self._row = 0
        self._next = 0.0
        self._strikes: dict[bytes, tuple[int, float]] = {}
        """How often a guard failed more than it let a circuit stand, and when that was counted last."""
        self._rests: dict[bytes, float] = {}
        self._avoided: dict[bytes, tuple[float, bool]] = {}

    def allowed(self, building: int) -> bool:
        """Whether one more may begin now, while `building` are under way. It counts as begun."""
        now = self._clock()
        # After failures in a row one at a time finds out whether that is over.
        most = self._pace.at_once if self._row < 3 else 1
        return building < most and now >= self._next and self._bucket.take(now)

    def succeeded(self, guard: bytes) -> None:
        """A circuit through this guard stands."""
        self._row = 0
        self._next = 0.0
        self._rests.pop(guard, None)
        # One step only: a guard that lets few circuits stand stays slow.
        self._strike(guard, -1)

    def build_failed(self) -> None:
        """Wait, longer each time in a row."""
        self._next = self._clock() + self._wait(self._row)
        self._row += 1

    def blame(self, path: tuple[RelayDescriptor, ...], failure: CircuitFailed) -> None:
        """Leave out the hop that is named and the one before it, which may have lied. A guard only rests."""
        if not 1 <= failure.position <= len(path):
            return
        now = self._clock()
        for index in {failure.position - 1, max(failure.position - 2, 0)}:
            name = path[index].name
            if index == 0:
                self._rests = {guard: at for guard, at in self._rests.items() if at > now}
                self._rests[name] = now + self._wait(self._strike(name, 1) - 1)
            else:
                self._avoided[name] = (now + self._pace.avoid, index == failure.position - 1)

    def _strike(self, guard: bytes, more: int) -> int:
        """Count it; guards of which nothing was heard for long are forgotten, since they change over months."""
        now = self._clock()
        count, _ = self._strikes.pop(guard, (0, now))
        self._strikes = {one: kept for one, kept in self._strikes.items() if now - kept[1] < FORGOTTEN_SECONDS}
        if count + more > 0:
            self._strikes[guard] = count + more, now
        return max(0, count + more)

    def resting(self, guard: bytes) -> bool:
        """Whether this guard is not to be tried just now."""
        return self._rests.get(guard, 0.0) > self._clock()

    def pause(self) -> float:
        """Seconds after which another try may have more to choose from, or be allowed."""
        now = self._clock()
        ahead = [at - now for at in (self._next, *self._rests.values()) if at > now]
        return min([self._pace.look, *(max(0.05, seconds) for seconds in ahead)])

    def avoided(self) -> list[frozenset[bytes]]:
        """Whom to leave out: all that may be at fault; where that leaves no choice, those named alone; else nobody."""
        now = self._clock()
        self._avoided = {name: entry for name, entry in self._avoided.items() if entry[0] > now}
        everybody = frozenset(self._avoided)
        named = frozenset(name for name, (_, first) in self._avoided.items() if first)
        return list(dict.fromkeys((everybody, named, frozenset())))

    def _wait(self, times: int) -> float:
        longest = min(self._pace.longest, self._pace.first * 2.0 ** min(times, 30))
        return longest * self._random.uniform(0.5, 1.0)
