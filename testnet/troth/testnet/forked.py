"""Python programs in processes that are forked from one which has imported everything.

A program that imports Troth and torch takes two to four seconds of processor time before it does anything. A network
has dozens of processes and commands, so most of the time of a demo or a test went there. Here a server of the
standard library (multiprocessing's forkserver) imports them once. Each program is a process of its own all the same:
its own memory, files and signals, and `kill -9` ends it as it ends any other.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

PRELOADED = ["troth.testnet.own_group", "troth.testnet.preloading"]
"""What the server imports before its first fork."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Libraries read these where they are loaded: in the server. Ten processes share the machine."""

PATIENCE = 0.5
"""Seconds after which whoever waits for an end looks again."""

_CONTEXT = multiprocessing.get_context("forkserver")
_LOCK = threading.Lock()
"""Held for each start and each look at an exit code: multiprocessing looks at all children from either, and an exit
code can be read once."""


class Forked:
    """One process, in words that `subprocess.Popen` has, too."""

    def __init__(self, process: multiprocessing.process.BaseProcess) -> None:
        self._process = process
        self._code: int | None = None
        assert process.pid is not None
        self.pid: int = process.pid
        self._sentinel, self._name = process.sentinel, process.name

    @property
    def returncode(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while nobody has seen it end."""
        return self.poll()

    def poll(self) -> int | None:
        """The same, after a look."""
        with _LOCK:
            return self._look()

    def _look(self) -> int | None:
        """Descriptors of a process that has ended are given back at once."""
        if self._code is None:
            self._code = self._process.exitcode
            if self._code is not None:
                self._process.close()
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code once it has ended; raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        give_up = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = PATIENCE if give_up is None else min(PATIENCE, give_up - time.monotonic())
            if left <= 0:
                raise subprocess.TimeoutExpired(self._name, timeout or 0.0)
            # Another thread that sees the end first closes what this one waits for.
            with contextlib.suppress(OSError, ValueError):
                multiprocessing.connection.wait([self._sentinel], left)
        return code

    def send_signal(self, number: int) -> None:
        """Nothing happens to a process that has ended."""
        with _LOCK, contextlib.suppress(ProcessLookupError):
            if self._look() is None:
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a loss of power does."""
        self.send_signal(signal.SIGKILL)


def preload(*modules: str) -> None:
    """Let the server import these, too; without effect once it runs."""
    PRELOADED.extend(module for module in modules if module not in PRELOADED)


def fork(target: Callable[..., None], arguments: tuple[object, ...], name: str) -> Forked:
    """Run a function of a module in a new process; everything given to it must be picklable."""
    # Daemonic: the end of the one that started it does not wait for it, but ends it.
    process: Any = _CONTEXT.Process(target=_begin, args=(target, arguments), name=name, daemon=True)
    with _LOCK:
        _ensure_server()
        process.start()
    return Forked(process)


def start(command: Sequence[str], environment: Mapping[str, str], output: Path, errors: Path | None = None) -> Forked:
    """Run `python -c CODE …` or `python -m MODULE …`, given as for a shell; what it prints is appended to the files.

    Without ``errors`` both streams go to ``output``. The process ends with the one that started it.
    """
    streams = (str(output), str(errors or output))
    for path in streams:
        Path(path).touch(mode=0o600)
    return fork(_become, (tuple(command[1:]), dict(environment), streams), " ".join(command[1:6]))


def run(command: Sequence[str], environment: Mapping[str, str], timeout: float) -> subprocess.CompletedProcess[str]:
    """The same to its end, with what it printed; raises subprocess.TimeoutExpired, after which it is gone."""
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder) / "output", Path(folder) / "errors"
        process = start(command, environment, output, errors)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            raise
        said = [path.read_text(errors="replace") for path in (output, errors)]
        return subprocess.CompletedProcess(list(command), code, *said)


def _ensure_server() -> None:
    _CONTEXT.set_forkserver_preload(PRELOADED)
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _begin(target: Callable[..., None], arguments: tuple[object, ...]) -> None:
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    target(*arguments)


def _end_with_parent() -> None:
    """Not even kill -9 of a demo leaves a process behind; the server would go on while it has children."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _become(arguments: tuple[str, ...], environment: dict[str, str], streams: tuple[str, str]) -> None:
    """In the new process: be the program."""
    # Daemons of multiprocessing may not start processes, as vLLM does. The program is not told that it is one.
    vars(multiprocessing.current_process())["_config"]["daemon"] = False
    take_streams(*streams)
    os.environ.clear()
    os.environ.update(environment)
    how, what, *rest = arguments
    if how == "-m":
        sys.argv = [what, *rest]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv = ["-c", *rest]
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - what `python -c` does
    else:
        raise ValueError(f"{how} is neither -c nor -m")


def take_streams(output: str, errors: str) -> None:
    """Append what this process prints to files."""
    for name, place in (("stdout", output), ("stderr", errors)):
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1 if name == "stdout" else 2)
        os.close(descriptor)
        getattr(sys, name).reconfigure(line_buffering=True, encoding="utf-8", errors="backslashreplace")
