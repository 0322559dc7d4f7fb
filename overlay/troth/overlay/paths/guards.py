"""Guards: the few relays that a client connects to itself, kept for months.

With a fresh first hop for each path a client meets a bad one soon; with lasting ones most clients never do. So nothing
that an attacker can bring about at will may exchange a guard: not a cut connection, not a clock, not a damaged file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random, SystemRandom

import msgspec

from troth.overlay.circuits.descriptors import RelayDescriptor
from troth.overlay.directory.listing import Listing
from troth.overlay.paths.choice import Crowd, Taken, operator_of
from troth.overlay.paths.errors import GuardsUnusable
from troth.overlay.paths.guard_file import Guard, GuardState, load_guards, locked, save_guards
from troth.overlay.paths.weights import network_of

DAY = 86_400
SAMPLED = 8
SHORTEST, LONGEST = 60 * DAY, 120 * DAY
"""A guard is kept for a random time between these: no one knows when to be there for the exchange."""
GONE = 7 * DAY
"""How long a guard must be missing in the directory before another one takes its place."""
NEW_A_DAY = 2
"""First tries of guards in 24 hours, once there are as many tried ones as paths."""
_HOUR = 3_600


class Guards:
    """The guards of one user, in a file that all of the user's clients share.

    Args:
        path: the file; made when guards are first chosen.
        sampled: how many are kept.
        clock: Unix seconds; believed only between a list's valid-after and valid-until, which members signed.

    Raises:
        GuardsUnusable: from the constructor and whenever the file must be written.
    """

    def __init__(
        self,
        path: Path,
        *,
        sampled: int = SAMPLED,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        self._path = path
        self._sampled = sampled
        self._clock = clock
        self._random = random or SystemRandom()
        self._valid = (0, 0)
        self._listed: dict[str, RelayDescriptor] = {}
        self._state = load_guards(path, LONGEST) or GuardState()

    @property
    def kept(self) -> tuple[Guard, ...]:
        """All of them, in order of preference."""
        return tuple(self._state.guards)

    def now(self) -> int:
        """Unix seconds: this machine's clock, within the list's validity, and never back."""
        after, until = self._valid
        return max(self._state.latest, after, min(int(self._clock()), until))

    def update(self, listing: Listing, crowd: Crowd, wanted: int) -> None:
        """A list came: note who is missing, let go whose time is over, and fill up.

        Args:
            crowd: the same list's relays, to draw from.
            wanted: guards used at a time. More than the usual number are kept only while fewer than this are listed.
        """
        self._valid = (listing.valid_after, listing.valid_until)
        with self._changing() as state:
            now = state.latest = self.now()
            self._note_missing(crowd, now)
            state.guards = [
                guard
                for guard in state.guards
                if now < guard.until and (guard.absent is None or now - guard.absent < GONE)
            ]
            state.tries = [at for at in state.tries if now - at < DAY]
            self._fill(crowd, wanted, now)

    def usable(self, wanted: int) -> list[RelayDescriptor]:
        """Those that may be connected to now, in order of preference; new ones only as many as the rule allows."""
        now = self.now()
        recent = sum(now - at < DAY for at in self._state.tries)
        tried = sum(guard.tried is not None for guard in self._state.guards if guard.name in self._listed)
        usable = []
        for guard in self._state.guards:
            if guard.name not in self._listed:
                continue
            if guard.tried is None:
                if recent >= NEW_A_DAY and (tried >= wanted or recent >= wanted):
                    continue
                recent, tried = recent + 1, tried + 1
            usable.append(self._listed[guard.name])
        return usable

    def trying(self, name: bytes) -> None:
        """A connection to this guard is about to be tried. Written down before, so that a crash forgets no try."""
        if self._guard(name).tried is not None:
            return
        with self._changing() as state:
            guard = self._guard(name)
            if guard.tried is None:
                state.latest = guard.tried = self.now()
                state.tries.append(guard.tried)

    def reached(self, name: bytes) -> None:
        """This guard answered."""
        hour = self.now() // _HOUR * _HOUR
        if self._guard(name).reached == hour:
            return
        with self._changing() as state:
            self._guard(name).reached = hour
            state.latest = max(state.latest, hour)

    @contextmanager
    def _changing(self) -> Iterator[GuardState]:
        """The state as the file has it now, written when the block is left; as it was if that fails."""
        before = self._state
        try:
            with locked(self._path):
                # Another client of this user may have changed it.
                self._state = load_guards(self._path, LONGEST) or msgspec.convert(
                    msgspec.to_builtins(before), GuardState
                )
                yield self._state
                save_guards(self._path, self._state)
        except GuardsUnusable:
            self._state = before
            raise

    def _guard(self, name: bytes) -> Guard:
        found = (guard for guard in self._state.guards if guard.name == name.hex())
        # It may have been let go since: nothing about it need be kept.
        return next(found, Guard(name.hex(), "", "", 0, 0, tried=0))

    def _note_missing(self, crowd: Crowd, now: int) -> None:
        """Who moved into a place that another guard has counts as missing: no guard can push another one out."""
        self._listed = {}
        taken = Taken()
        found = [(guard, crowd.named(bytes.fromhex(guard.name))) for guard in self._state.guards]
        for guard, relay in sorted(found, key=lambda pair: pair[1] is not None and _moved(pair[0], pair[1])):
            if relay is None or not taken.free(relay):
                guard.absent = now if guard.absent is None else guard.absent
            else:
                guard.absent = None
                taken.add(relay)
                self._listed[guard.name] = relay
                guard.operator, guard.network = operator_of(relay), network_of(relay.place.host)

    def _fill(self, crowd: Crowd, wanted: int, now: int) -> None:
        taken = Taken(self._listed.values())
        known = frozenset(bytes.fromhex(guard.name) for guard in self._state.guards)
        while len(self._state.guards) < max(self._sampled, wanted) or len(self._listed) < wanted:
            relay = crowd.draw(taken, known, self._random)
            if relay is None:
                return
            taken.add(relay)
            operator, network = operator_of(relay), network_of(relay.place.host)
            until = now + self._random.randint(SHORTEST, LONGEST)
            self._state.guards.append(Guard(relay.name.hex(), operator, network, now, until))
            self._listed[relay.name.hex()] = relay


def _moved(guard: Guard, relay: RelayDescriptor) -> bool:
    return (guard.operator, guard.network) != (operator_of(relay), network_of(relay.place.host))
