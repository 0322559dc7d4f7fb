"""What a task costs on chain, from the receipts of a real EVM: the market's calls, then those of the per-task way
beside the paper's Table 8."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import lifecycle, reviewing
from benchmarks.figures import Figure
from benchmarks.market import table
from troth.demo.anvil import start_anvil
from troth.demo.processes import ProcessGroup
from troth.protocol.calls import change_slice
from troth.protocol.types import Segment, to_address

PAPER_TOTAL = 797_838
MOVE = "changeSlice: from one group to another"
TOTAL_NOTE = "the paper's total is one of each of its five operations"


def measure() -> list[Figure]:
    """The market's table, then the per-task way's: its second task of each kind, when every slot that outlives a task
    has been written before."""
    return [*_on_a_chain(table.measure), *_on_a_chain(lambda rpc: asyncio.run(_measure(rpc)))]


def _on_a_chain(play: Callable[[str], list[Figure]]) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        processes = ProcessGroup(Path(folder))
        try:
            _, rpc = start_anvil(processes, block_seconds=0)
            return play(rpc)
        finally:
            processes.stop_all()


async def _measure(rpc: str) -> list[Figure]:
    tolerant = await lifecycle.build(rpc, exact=False)
    exact = await lifecycle.build(rpc, exact=True)
    runs: dict[str, dict[str, int]] = {}
    for nonce, (name, world, play) in enumerate(
        (name, world, play)
        for _ in range(2)
        for name, world, play in (
            ("steps", tolerant, lifecycle.step_by_step),
            ("tolerant", tolerant, lifecycle.cooperative),
            ("tolerant merged", tolerant, lifecycle.merged),
            ("exact", exact, lifecycle.cooperative),
            ("exact merged", exact, lifecycle.merged),
        )
    ):
        runs[name] = (await play(world, nonce)).gas
    moved = await _moved(exact)
    for world in (tolerant, exact):
        await world.chain.close()
    return [*_steps(runs["steps"]), *_totals(runs), *await _reviews(rpc), Figure(MOVE, moved, "gas")]


async def _moved(world: lifecycle.World) -> int:
    """The second node that goes the same way, into a group that is there by then."""
    gas = 0
    for node in list(world.nodes)[:2]:
        call = change_slice(to_address(node), lifecycle.WHOLE, (Segment(0, 1),))
        gas = (await world.chain.execute(call, world.owner)).gas_used
    return gas


async def _reviews(rpc: str) -> list[Figure]:
    figures = []
    for reviewers in (5, 15):
        for exact in (False, True):
            world = await lifecycle.build(rpc, exact=exact, reviewers=reviewers, group=5 + reviewers)
            gas: dict[str, int] = {}
            for nonce in range(2):
                gas = await reviewing.reviewed(world, nonce)
            await world.chain.close()
            kind = f"{'exact' if exact else 'tolerant'} class, m' = {reviewers}"
            figures += [Figure(f"{step}: {kind}", value, "gas") for step, value in gas.items()]
    return figures


def _steps(gas: dict[str, int]) -> list[Figure]:
    return [
        Figure("create (open)", gas["open"], "gas", 141_466, 55_000),
        Figure(
            "assign: one VRF proof, parties derived",
            gas["assign"],
            "gas",
            note="the paper checks no assignment on chain",
        ),
        Figure("commit inference", gas["commit inference"], "gas", 70_532, 35_000),
        Figure("commit verification", gas["commit verification"], "gas", 167_100, 35_000),
        Figure("sample with VRF", gas["sample"], "gas", 284_740, 65_000),
        Figure("reveal: 128 floats and a path of 9", gas["reveal"], "gas", 134_000, 85_000),
        Figure("settle after own reveals", gas["settle"], "gas", note="pays five parties"),
    ]


def _totals(runs: dict[str, dict[str, int]]) -> list[Figure]:
    rows = (
        ("tolerant", "tolerant class, open + commit + settle", 290_000),
        ("tolerant merged", "tolerant class, openAndCommit + settle", 290_000),
        ("exact", "exact class, open + commit + settle", 160_000),
        ("exact merged", "exact class, openAndCommit + settle", 160_000),
    )
    return [
        Figure(
            f"one task, one segment, k = 3: {what}",
            sum(runs[name].values()),
            "gas",
            PAPER_TOTAL,
            reach,
            note=" + ".join(f"{step} {gas:,}" for step, gas in runs[name].items()),
        )
        for name, what, reach in rows
    ]
