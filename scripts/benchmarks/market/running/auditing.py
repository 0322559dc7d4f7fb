"""An audit of a thousand tasks from a served log and a chain: `troth audit log` as its user runs it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time

from benchmarks.figures import Figure
from benchmarks.market.running.toy_network import ToyNetwork
from troth.scheduler.log.entries import ENTRY_ORDERS
from troth.testnet import cli

REACH = 10.0
BEFORE = 37.5
"""Seconds a thousand tasks of the per-task way: 25 to 50."""


def _children() -> float:
    """Processor seconds of child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


async def measure(network: ToyNetwork, tasks: int) -> list[Figure]:
    """Audit all that was posted; ``tasks`` are in it."""
    stage = network.stage
    arguments = ("log", stage.scheduler.address, "--rpc", network.rpc, "--factory", stage.market.place.factory)
    begun, before = time.monotonic(), _children()
    done = await asyncio.to_thread(
        subprocess.run,
        cli.command("audit", *arguments),
        capture_output=True,
        text=True,
        env=cli.environment(network.home / "password"),
        check=False,
    )
    seconds = time.monotonic() - begun
    if done.returncode != 0:
        raise RuntimeError(f"the audit of an honest log found something:\n{done.stdout}\n{done.stderr}")
    a_thousand = seconds * ENTRY_ORDERS / tasks
    spent = _children() - before
    whole = f"{seconds:.1f} s ({spent:.1f} s of processor), its start and the chain's events included"
    note = f"`troth audit log` over {tasks:,} tasks: {whole}"
    return [Figure("audit of 1,000 tasks from a served log and a chain", a_thousand, "s", BEFORE, REACH, note)]
