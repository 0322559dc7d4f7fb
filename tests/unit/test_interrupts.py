"""A command that is interrupted ends with the signal's code, after what it has to say, and without a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys

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
interruptible(work())
"""


def started(lasting: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM.format(lasting=lasting)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_it_with_its_code_once_all_is_said(number: signal.Signals) -> None:
    process = started(0.3)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + number, "owed\n", "")


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_wait(first: signal.Signals, second: signal.Signals) -> None:
    process = started(600)
    process.send_signal(first)
    assert process.stdout is not None
    assert process.stdout.readline() == "owed\n"
    process.send_signal(second)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + first
    assert err.strip().startswith("stopped at once; what was ordered or sent stands")
    assert len(err.strip().splitlines()) == 1
