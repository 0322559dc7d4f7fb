"""scripts/quietly, and that the Makefile compiles by it: no compiler outlives a `make` that was stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUIETLY = ROOT / "scripts" / "quietly"
COMPILES = "import subprocess, sys; one = subprocess.Popen(['sleep', '600']); print(one.pid, flush=True); one.wait()"
DEADLINE = 30.0
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def run(log: Path, program: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(QUIETLY), str(log), sys.executable, "-c", program]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=DEADLINE)


def test_only_a_command_that_fails_is_heard(tmp_path: Path) -> None:
    good, bad = (run(tmp_path / "log", f"print('a thousand warnings'); raise SystemExit({code})") for code in (0, 3))
    assert (good.returncode, good.stdout, good.stderr) == (0, "", "")
    assert (bad.returncode, bad.stdout, bad.stderr) == (3, "", "a thousand warnings\n")


def begun(log: Path, ignored: signal.Signals | None = None) -> subprocess.Popen[bytes]:
    def as_in_a_terminal() -> None:
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN if number is ignored else signal.SIG_DFL)

    words = [sys.executable, str(QUIETLY), str(log), sys.executable, "-c", COMPILES]
    return subprocess.Popen(words, preexec_fn=as_in_a_terminal)  # noqa: PLW1509 - it calls nothing that locks


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_ends_what_the_command_started(number: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = begun(log)
    try:
        compiler = started(log)
        process.send_signal(number)
        assert process.wait(DEADLINE) == 128 + number
        require_gone(compiler)
    finally:
        process.kill()


def test_what_nohup_had_ignored_stays_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = begun(log, ignored=signal.SIGHUP)
    try:
        compiler = started(log)
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 128 + signal.SIGTERM
        require_gone(compiler)
    finally:
        process.kill()


def started(log: Path) -> int:
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        if log.exists() and (text := log.read_text()).endswith("\n"):
            return int(text)
        time.sleep(0.05)
    raise AssertionError("the command did not start")


def require_gone(process: int) -> None:
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        # An orphan that nobody reaps has ended all the same.
        if re.search(r"^State:\s+Z", Path(f"/proc/{process}/status").read_text(), re.MULTILINE):
            return
        time.sleep(0.05)
    raise AssertionError(f"{process} goes on")


def test_the_makefile_compiles_by_it() -> None:
    """Where a recipe sends output to a file by itself, a shell stands between `make` and the compiler."""
    recipes = re.findall(r"^\t(.*hardhat build.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(recipes) == 2
    for recipe in recipes:
        assert "$(QUIETLY) $@.log hardhat build" in recipe
        assert not set(recipe) & set("|>;&")
