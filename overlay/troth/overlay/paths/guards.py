"""Guards: the few relays that a client connects to itself, kept for months in a file of mode 0600.

A damaged file is an error and never a fresh set: whoever can damage it, or make a client start anew, would otherwise
make it choose new guards until one is theirs. Troth itself cannot leave half a file behind.

With a fresh first hop for each path a client meets a bad one soon; with lasting ones most clients never do. So nothing
that an attacker can bring about at will may exchange a guard: not a cut connection, not a clock, not a damaged file.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random, SystemRandom

import msgspec

from troth.chain.new_files import replace_file
from troth.overlay.circuits.descriptors import RelayDescriptor
from troth.overlay.directory.listing import Listing
from troth.overlay.paths.choice import Crowd, RelaysInUse, network_of, operator_of
from troth.overlay.paths.errors import GuardsUnusable
from troth.protocol.struct_kinds import prepared

VERSION = 1
_LARGEST = 2**20
_CHOOSE_ANEW = "Restore it from a copy; or move it away, and new guards are chosen."
DAY = 86_400
SAMPLED = 8
SHORTEST, LONGEST = 60 * DAY, 120 * DAY
"""A guard is kept for a random time between these: no one knows when to be there for the exchange."""
GONE = 7 * DAY
"""How long a guard must be missing in the directory before another one takes its place."""
NEW_A_DAY = 2
"""First tries of guards in 24 hours, once there are as many tried ones as paths."""
_HOUR = 3_600


class Guard(msgspec.Struct, forbid_unknown_fields=True):
    """One guard. All times in Unix seconds.

    Attributes:
        name: hex of the relay's name.
        operator, network: as they were when it was chosen.
        chosen, until: when it was chosen, and when another one takes its place.
        tried: when this client first tried to connect to it, if it did.
        reached: when it last answered, to the hour: the file need not say when its owner was on line.
        absent: since when the directory does not list it.
    """

    name: str
    operator: str
    network: str
    chosen: int
    until: int
    tried: int | None = None
    reached: int | None = None
    absent: int | None = None


class GuardState(msgspec.Struct, forbid_unknown_fields=True):
    """What is remembered.

    Attributes:
        latest: the latest time ever seen: a clock that is set back changes nothing.
        tries: when guards were tried for the first time, the last day's, also of guards that are none any more.
        guards: in order of preference.
    """

    version: int = VERSION
    latest: int = 0
    tries: list[int] = []
    guards: list[Guard] = []


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """No other process reads and changes the file inside the block; raises GuardsUnusable."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Beside it: the file itself is replaced.
        descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unwritable(error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def load_guards(path: Path) -> GuardState | None:
    """What the file says, None if there is none; no guard may be kept for longer than `LONGEST`.

    Raises GuardsUnusable.
    """
    try:
        if path.lstat().st_size > _LARGEST:
            raise GuardsUnusable("The file of guards is larger than any", path, _CHOOSE_ANEW)
        mode = stat.S_IMODE(path.stat().st_mode)
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise GuardsUnusable("The file of guards cannot be read", error, "Make it readable for this user.") from error
    if mode & 0o077:
        raise GuardsUnusable(f"Others may use the file of guards (mode {mode:04o})", path, f"Run: chmod 600 {path}")
    try:
        state = msgspec.json.decode(content, type=prepared(GuardState))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise GuardsUnusable(f"The file of guards {path} is damaged", error, _CHOOSE_ANEW) from error
    wrong = _wrong(state)
    if wrong:
        raise GuardsUnusable(f"The file of guards {path} is damaged", wrong, _CHOOSE_ANEW)
    return state


def _wrong(state: GuardState) -> str:
    if state.version != VERSION:
        return f"version {state.version}"
    names = [guard.name for guard in state.guards]
    if len(set(names)) != len(names):
        return "a guard stands there twice"
    for guard in state.guards:
        if len(guard.name) != 64 or guard.name.strip("0123456789abcdef"):
            return f"{guard.name[:70]} is no name"
        if not 0 <= guard.chosen <= guard.until <= guard.chosen + LONGEST or guard.chosen > state.latest:
            return f"the times of {guard.name[:16]}"
        if any(at is not None and not 0 <= at <= state.latest for at in (guard.tried, guard.reached, guard.absent)):
            return f"the times of {guard.name[:16]}"
    if any(not 0 <= at <= state.latest for at in state.tries):
        return "the times of first tries"
    return ""


def save_guards(path: Path, state: GuardState) -> None:
    """Replace the file, whose lock the caller holds; raises GuardsUnusable, and the old one stays."""
    try:
        replace_file(path, msgspec.json.format(msgspec.json.encode(state), indent=1))
    except OSError as error:
        raise _unwritable(error) from error


def _unwritable(error: OSError) -> GuardsUnusable:
    return GuardsUnusable("The file of guards cannot be written", error, "Make room, or give this user the folder.")


class Guards:
    """The guards of one user, in a file that all of the user's clients share.

    Args:
        path: the file; made when guards are first chosen.
        clock: Unix seconds; believed only between a list's valid-after and valid-until, which members signed.

    Raises:
        GuardsUnusable: from the constructor and whenever the file must be written.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        self._path = path
        self._clock = clock
        self._random = random or SystemRandom()
        self._valid = (0, 0)
        self._listed: dict[str, RelayDescriptor] = {}
        self._state = load_guards(path) or GuardState()

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
                self._state = load_guards(self._path) or msgspec.convert(msgspec.to_builtins(before), GuardState)
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
        taken = RelaysInUse()
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
        taken = RelaysInUse(self._listed.values())
        known = frozenset(bytes.fromhex(guard.name) for guard in self._state.guards)
        while len(self._state.guards) < max(SAMPLED, wanted) or len(self._listed) < wanted:
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
