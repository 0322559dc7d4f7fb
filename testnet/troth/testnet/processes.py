"""Child processes with a log file each, which never outlive their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from troth.testnet import forked
from troth.testnet.errors import ProcessDied

STOP_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Child:
    """One running process: its name, its command, the file that holds what it printed."""

    name: str
    command: tuple[str, ...]
    log: Path
    process: subprocess.Popen[bytes] | forked.Forked

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def tail(self, lines: int = 12) -> str:
        """The last lines it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def require_alive(self) -> None:
        """Raise ProcessDied with the end of its log if it has ended."""
        if not self.alive:
            raise ProcessDied(
                f"{self.name} ended", f"exit code {self.process.returncode}", f"Its log says:\n{self.tail()}"
            )

    def stop(self, kill: bool = False) -> None:
        """End it: politely, then, after STOP_SECONDS, for certain. With `kill` at once (what a crash looks like)."""
        if self.alive:
            self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass(slots=True)
class ProcessGroup:
    """All processes of one network."""

    logs: Path
    children: dict[str, Child] = field(default_factory=dict)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Child:
        """Start a process; its output goes to `logs/NAME.log`. Programs of Python are forked: see ``forked``."""
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.logs / f"{name}.log"
        variables = {**os.environ, **(environment or {})}
        process: subprocess.Popen[bytes] | forked.Forked
        if command[0] == sys.executable:
            process = forked.start(command, variables, log)
        else:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=variables,
                    preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - one system call, no locks
                )
        child = Child(name, tuple(command), log, process)
        self.children[name] = child
        return child

    def stop_all(self) -> None:
        """End every process, all at once rather than one after the other."""
        for child in self.children.values():
            if child.alive:
                child.process.terminate()
        for child in reversed(self.children.values()):
            child.stop()
        self.children.clear()


def wait_until(condition: Callable[[], bool], what: str, seconds: float, watched: Sequence[Child] = ()) -> None:
    """Poll `condition` until it holds; raise ProcessDied if a watched process ends or the time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        for child in watched:
            child.require_alive()
        if time.monotonic() > deadline:
            logs = "\n".join(f"{child.name}:\n{child.tail(6)}" for child in watched)
            raise ProcessDied(
                f"{what} did not happen", f"within {seconds:.0f} s", f"What the processes printed last:\n{logs}"
            )
        time.sleep(0.05)


def _die_with_parent() -> None:
    """Ask Linux to end this process with the thread that started it: not even kill -9 of the demo leaves one behind."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
