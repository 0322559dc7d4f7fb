"""Runs `troth` sub-commands the way a user would: as processes, with arguments and password files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from troth.testnet import forked
from troth.testnet.errors import ProcessDied

TIMEOUT_SECONDS = 600.0


def command(*arguments: object) -> list[str]:
    """The command line of a `troth` sub-command, run by this very interpreter."""
    return [sys.executable, "-c", "from troth.command.main import main; main()", *(str(part) for part in arguments)]


def throttled(slowdown: float, *arguments: object) -> list[str]:
    """The same on a machine whose engine takes `slowdown` times as long."""
    code = "from troth.testnet.throttled import main; main()"
    return [sys.executable, "-c", code, str(slowdown), *(str(part) for part in arguments)]


def cheating(weights: Path, *arguments: object) -> list[str]:
    """The same, of which a node infers with other weights and verifies with its own."""
    code = "from troth.testnet.cheating import main; main()"
    return [sys.executable, "-c", code, str(weights), *(str(part) for part in arguments)]


def colluding(true: str, false: str, *arguments: object) -> list[str]:
    """The same, of which a node writes one word for another, and accepts whatever it verifies."""
    code = "from troth.testnet.colluding import main; main()"
    return [sys.executable, "-c", code, true, false, *(str(part) for part in arguments)]


def refusing(*arguments: object) -> list[str]:
    """The same, of which a scheduler refuses checks."""
    code = "from troth.testnet.refusing import main; main()"
    return [sys.executable, "-c", code, *(str(part) for part in arguments)]


def environment(password_file: Path) -> dict[str, str]:
    """Variables for a sub-command: its password file, one thread a process (ten of them share the machine)."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("TROTH_")},
        "TROTH_PASSWORD_FILE": str(password_file),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }


def output_of(command: list[str], password_file: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end, whatever it exits with."""
    return forked.run(command, environment(password_file), TIMEOUT_SECONDS)


def run(password_file: Path, *arguments: object) -> Any:
    """Run a sub-command with --json to its end and return what it printed, parsed.

    Raises:
        ProcessDied: it exited with another code than 0; the error holds what it said.
    """
    done = output_of(command(*arguments, "--json"), password_file)
    if done.returncode:
        words = " ".join(str(part) for part in arguments[:2])
        raise ProcessDied(f"troth {words} failed", f"exit code {done.returncode}", _said(done))
    return json.loads(done.stdout)


def _said(done: subprocess.CompletedProcess[str]) -> str:
    """The error of a sub-command as its user would have read it without --json; else all that it wrote."""
    written = (done.stderr or done.stdout).strip()
    try:
        error = json.loads(written.splitlines()[-1])["error"]
        return f"It said: {error['what']}: {error['value']}. {error['remedy']}"
    except (IndexError, KeyError, TypeError, ValueError):
        return f"It said:\n{written}"
