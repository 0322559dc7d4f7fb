"""Options of `scripts/bench market`, and which rows they ask for."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.figures import Figure

ROWS = ("orders", "gas", "audit", "language")
TOY = frozenset({"orders", "gas", "audit"})
CLIENTS = 8


def parse(options: Sequence[str]) -> argparse.Namespace:
    """What to measure, and how much of it."""
    parser = argparse.ArgumentParser(prog="scripts/bench market", description=__doc__)
    parser.add_argument("--rows", default=",".join(ROWS), help=f"of {', '.join(ROWS)}; all of them if not named")
    parser.add_argument("--orders", type=int, default=2_000, help="orders whose time is taken")
    parser.add_argument("--tasks", type=int, default=10_000, help="short tasks over which gas is counted")
    parser.add_argument("--questions", type=int, default=20, help="questions to SmolLM2")
    parser.add_argument("--concurrent", type=int, default=16, help="requests under way at once")
    parser.add_argument("--models", type=Path, default=Path(".troth"), help="where converted models are")
    arguments = parser.parse_args(options)
    arguments.rows = tuple(arguments.rows.split(","))
    unknown = set(arguments.rows) - set(ROWS)
    if unknown:
        parser.error(f"there is no row {', '.join(sorted(unknown))}: choose of {', '.join(ROWS)}")
    if "audit" in arguments.rows and "gas" not in arguments.rows:
        arguments.rows = ("gas", *arguments.rows)
    if "gas" in arguments.rows and arguments.tasks % 1_000:
        parser.error("--tasks are whole thousands: a log entry holds one")
    return arguments


def report(text: str) -> None:
    """Progress goes where figures do not."""
    print(f"  {text}", file=sys.stderr, flush=True)


def measure(options: Sequence[str]) -> list[Figure]:
    """The rows that are asked for, in their order."""
    wanted = parse(options)
    figures: list[Figure] = []
    if "language" in wanted.rows:
        from benchmarks.market.running import language

        figures += language.measure(wanted.models, wanted.questions, report)
    if TOY & set(wanted.rows):
        with tempfile.TemporaryDirectory() as folder:
            figures += asyncio.run(_toy(Path(folder), wanted, report))
    return figures


async def _toy(home: Path, wanted: argparse.Namespace, say: Callable[[str], None]) -> list[Figure]:
    from benchmarks.market.running import auditing, gas_a_task, throughput
    from benchmarks.market.running.toy_network import toy_network

    figures: list[Figure] = []
    say(f"setting up a chain, a scheduler, nodes over a toy model and {CLIENTS} tabs")
    if "gas" in wanted.rows:
        async with toy_network(home / "gas", clients=CLIENTS) as network:
            figures += await gas_a_task.measure(network, wanted.tasks, wanted.concurrent, say)
            if "audit" in wanted.rows:
                figures += await auditing.measure(network, wanted.tasks)
    if "orders" in wanted.rows:
        async with toy_network(home / "orders", clients=CLIENTS) as network:
            figures += await throughput.measure(network, wanted.orders, wanted.concurrent, say)
    return figures
