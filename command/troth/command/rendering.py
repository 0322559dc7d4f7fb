"""How an error reaches the user: three lines on standard error, or one JSON object with --json; no traceback."""

from __future__ import annotations

import errno
import json
import sys
import traceback
from typing import Any, NamedTuple

DEFAULT_EXIT_CODE = 1
UNKNOWN = "The command stopped on an error that it does not know"
"""What is said of an error that no package foresaw: a fault of ours."""

INSTALL_AGAIN = (
    "Install Troth again as it was installed: `make setup` in a checkout, otherwise pip with its folder or wheel; "
    "nodes, and clients that check by themselves, need the extra torch."
)
"""What to do where a package is absent, as after a `git pull` that brought a new one."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where nothing more can be written; it seldom names the file."""

UNWRITABLE = ("SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_FULL")
"""Begins of what SQLite calls a disk or a folder that does not let it write; it names no file."""
_PATHS: tuple[tuple[type[OSError], str, str], ...] = (
    (NotADirectoryError, "A file is where a folder should be", "Name a folder, or move the file away."),
    (FileExistsError, "A file is where a folder should be", "Name a folder, or move the file away."),
    (IsADirectoryError, "A folder is where a file should be", "Name a file."),
    (FileNotFoundError, "There is no such file", "Check the path."),
    (PermissionError, "This may not be read or written", "Change its owner or mode, or name another."),
)


class Rendered(NamedTuple):
    """An error as it is shown: what happened, the offending value, what to do, and the exit code."""

    kind: str
    what: str
    value: str
    remedy: str
    exit_code: int


def describe(error: BaseException) -> Rendered:
    """Read an error of any Troth package (they carry what, value and remedy), or wrap an unexpected one."""
    kind = type(error).__name__
    exit_code = getattr(error, "exit_code", DEFAULT_EXIT_CODE)
    what, remedy = getattr(error, "what", None), getattr(error, "remedy", None)
    if isinstance(what, str) and isinstance(remedy, str):
        return Rendered(kind, what, _printable(getattr(error, "value", "")), remedy, exit_code)
    if isinstance(error, OSError) and error.errno in FULL:
        remedy = "Make room on the disk, or allow larger files, then give the command again."
        what = "A file would be larger than is allowed here" if error.errno == errno.EFBIG else "The disk is full"
        return Rendered(kind, what, str(error.filename or error.strerror), remedy, exit_code)
    if isinstance(error, OSError) and error.filename is not None:
        return _about_a_path(error)
    # By its name: a command that succeeds does not load SQLite for this.
    if str(named := getattr(error, "sqlite_errorname", "")).startswith(UNWRITABLE):
        what, remedy = "A database of the home folder cannot be used", "Check that --home can be written, and the disk."
        return Rendered(kind, what, f"{error} ({named})", remedy, exit_code)
    if absent := absent_package(error):
        return Rendered(kind, "A package that Troth needs is not installed", absent, INSTALL_AGAIN, exit_code)
    return Rendered(
        kind,
        UNKNOWN,
        f"{kind}: {error}",
        "Run it again as `troth --debug ...` to see where, and report it.",
        exit_code,
    )


def absent_package(error: BaseException) -> str:
    """The package of somebody else that an import did not find; empty for any other error."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return "" if name == "troth" else name


def _about_a_path(error: OSError) -> Rendered:
    """What the system says about a path that somebody named."""
    for kind, what, remedy in _PATHS:
        if isinstance(error, kind):
            return Rendered(type(error).__name__, what, str(error.filename), remedy, DEFAULT_EXIT_CODE)
    what = f"The system refuses: {error.strerror}"
    return Rendered(type(error).__name__, what, str(error.filename), "Check the path and the disk.", DEFAULT_EXIT_CODE)


def _printable(value: Any) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)


def show_error(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Print an error to standard error and return the exit code."""
    rendered = describe(error)
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if as_json:
        sys.stderr.write(json.dumps({"error": rendered._asdict()}) + "\n")
    else:
        _show_lines(rendered)
    return rendered.exit_code


def _show_lines(rendered: Rendered) -> None:
    # Imported here: a command that succeeds does not pay for rich.
    from rich.console import Console
    from rich.text import Text

    from troth.transport.errors import visible

    def line(head: str, colour: str, text: str) -> Text:
        # Whatever a stranger said may be in an error: it must not steer the terminal, nor look like a line of ours.
        harmless = f"\n{' ' * len(head)}".join(visible(one) for one in text.splitlines())
        return Text(head, style=f"bold {colour}").append(harmless, style="not bold default")

    console = Console(stderr=True, soft_wrap=True)
    console.print(line("error: ", "red", rendered.what))
    console.print(line("value: ", "default", rendered.value))
    console.print(line("to do: ", "green", rendered.remedy))
