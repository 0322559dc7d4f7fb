"""`troth` that dies as by kill -9 at one place: before or after it calls a function the n-th time.

A process that is killed from outside dies wherever it happens to be. This one dies between two given steps, each time.
"""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

TESTS = Path(__file__).resolve().parents[1]


def command(where: str, *arguments: object, after: bool = False, times: int = 1) -> list[str]:
    """The command line of a `troth` sub-command that dies at ``where``, written module:Class.method."""
    code = f"import sys; sys.path.insert(0, {str(TESTS)!r}); from support.dying import main; main()"
    how = ("after" if after else "before", str(times))
    return [sys.executable, "-c", code, where, *how, *(str(one) for one in arguments)]


def main() -> None:
    """As `troth`, with the same arguments after place, side and number."""
    where, side, times, *arguments = sys.argv[1:]
    module_name, _, path = where.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module_name)
    for one in owners:
        owner = getattr(owner, one)
    setattr(owner, name, _dying(getattr(owner, name), side, int(times)))
    sys.argv = ["troth", *arguments]
    from troth.command.main import main as troth

    troth()


def _dying(function: Callable[..., Any], side: str, times: int) -> Callable[..., Any]:
    calls = 0

    def due() -> bool:
        nonlocal calls
        calls += 1
        return calls >= times

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def dying_later(*arguments: Any, **named: Any) -> Any:
            last = due()
            if last and side == "before":
                _die()
            done = await function(*arguments, **named)
            if last:
                _die()
            return done

        return dying_later

    @wraps(function)
    def dying(*arguments: Any, **named: Any) -> Any:
        last = due()
        if last and side == "before":
            _die()
        done = function(*arguments, **named)
        if last:
            _die()
        return done

    return dying


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives SIGKILL")
