"""A command that is interrupted ends with the signal's code, after what it has to say, and without a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PROGRAM = """
import asyncio, signal
from troth.client.interrupts import interruptible

async def work():
    try:
        print("begun", flush=True)
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        print("owed", flush=True)
        await asyncio.sleep({lasting})
        raise

# What a shell starts in its background ignores it, and so does what that starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
{before}
interruptible(work())
"""
ELSEWHERE = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
"""
"""From here on another thread is who takes a signal."""

NO_READERS = """
def no_readers(*_):
    raise NotImplementedError
asyncio.SelectorEventLoop.add_reader = no_readers
"""
"""As the loop of Windows is."""


@contextmanager
def started(lasting: float, before: str = "") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM.format(lasting=lasting, before=before)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("before", ["", NO_READERS], ids=["", "a loop without readers"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_it_with_its_code_once_all_is_said(number: signal.Signals, before: str) -> None:
    with started(0.3, before) as process:
        time.sleep(0.5 if before else 0)  # nothing wakes such a loop here that was not asleep yet
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (128 + number, "owed\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heard_that_does_not_wake_the_thread_of_the_loop(number: signal.Signals) -> None:
    """So does one that comes just before the loop goes to sleep, which cannot be timed."""
    with started(0, before=ELSEWHERE) as process:
        time.sleep(0.5)  # the loop sleeps
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (128 + number, "owed\n", "")


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_wait(first: signal.Signals, second: signal.Signals) -> None:
    with started(600) as process:
        process.send_signal(first)
        assert process.stdout is not None
        assert process.stdout.readline() == "owed\n"
        process.send_signal(second)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 128 + first
        assert err.strip().startswith("stopped at once; what was ordered or sent stands")
        assert len(err.strip().splitlines()) == 1
