"""The file of guards: JSON, mode 0600, replaced in one step.

A damaged file is an error and never a fresh set: whoever can damage it, or make a client start anew, would otherwise
make it choose new guards until one is theirs. Troth itself cannot leave half a file behind.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from troth.overlay.paths.errors import GuardsUnusable

VERSION = 1
_LARGEST = 2**20
_CHOOSE_ANEW = "Restore it from a copy; or move it away, and new guards are chosen."


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


def load_guards(path: Path, longest: int) -> GuardState | None:
    """What the file says, None if there is none; no guard may be kept for more than `longest` seconds.

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
        state = msgspec.json.decode(content, type=GuardState)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise GuardsUnusable(f"The file of guards {path} is damaged", error, _CHOOSE_ANEW) from error
    wrong = _wrong(state, longest)
    if wrong:
        raise GuardsUnusable(f"The file of guards {path} is damaged", wrong, _CHOOSE_ANEW)
    return state


def _wrong(state: GuardState, longest: int) -> str:
    if state.version != VERSION:
        return f"version {state.version}"
    names = [guard.name for guard in state.guards]
    if len(set(names)) != len(names):
        return "a guard stands there twice"
    for guard in state.guards:
        if len(guard.name) != 64 or guard.name.strip("0123456789abcdef"):
            return f"{guard.name[:70]} is no name"
        if not 0 <= guard.chosen <= guard.until <= guard.chosen + longest or guard.chosen > state.latest:
            return f"the times of {guard.name[:16]}"
        if any(at is not None and not 0 <= at <= state.latest for at in (guard.tried, guard.reached, guard.absent)):
            return f"the times of {guard.name[:16]}"
    if any(not 0 <= at <= state.latest for at in state.tries):
        return "the times of first tries"
    return ""


def save_guards(path: Path, state: GuardState) -> None:
    """Replace the file, whose lock the caller holds; raises GuardsUnusable, and the old one stays."""
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        staging.unlink(missing_ok=True)
        descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(state), indent=1))
            file.flush()
            os.fsync(file.fileno())
        staging.replace(path)
    except OSError as error:
        raise _unwritable(error) from error


def _unwritable(error: OSError) -> GuardsUnusable:
    return GuardsUnusable("The file of guards cannot be written", error, "Make room, or give this user the folder.")
