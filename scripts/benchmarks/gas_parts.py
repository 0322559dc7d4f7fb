"""Where the gas of each call goes: calldata, storage, precompiles, events, and what is left for computing.

Taken from the traces of real transactions. What is not computing cannot be saved by better code, only by posting,
storing or checking less.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, cast

from benchmarks import lifecycle
from benchmarks.figures import Figure
from troth.demo.anvil import rpc, start_anvil
from troth.demo.processes import ProcessGroup
from troth.protocol.types import Hash32

BASE = 21_000
ZERO_BYTE, OTHER_BYTE = 4, 16
STEPS = ("open", "assign", "commit inference", "commit verification", "sample", "reveal", "settle")


def measure() -> list[Figure]:
    """One row a call: own posts and reveals first, then the calls of a task whose parties cooperate."""
    with tempfile.TemporaryDirectory() as folder:
        processes = ProcessGroup(Path(folder))
        try:
            _, address = start_anvil(processes, block_seconds=0, options=("--steps-tracing",))
            return asyncio.run(_measure(address))
        finally:
            processes.stop_all()


async def _measure(address: str) -> list[Figure]:
    figures: list[Figure] = []
    for exact in (False, True):
        world = await lifecycle.build(address, exact=exact)
        plays = [("", lifecycle.merged, ("openAndCommit", "settle"))]
        if not exact:
            plays.insert(0, ("own ", lifecycle.step_by_step, STEPS))
        for prefix, play, names in plays:
            await play(world, 0)  # writes the slots that outlive a task
            request = await play(world, 1)
            kind = prefix or ("exact " if exact else "tolerant ")
            figures += [_figure(address, kind + name, request.transactions[name]) for name in names]
        await world.chain.close()
    return figures


def _figure(address: str, name: str, transaction: Hash32) -> Figure:
    sent = cast(dict[str, Any], rpc(address, "eth_getTransactionByHash", "0x" + transaction.hex()))
    receipt = cast(dict[str, Any], rpc(address, "eth_getTransactionReceipt", "0x" + transaction.hex()))
    options = {"disableStorage": True, "disableMemory": True, "disableStack": True}
    trace = cast(dict[str, Any], rpc(address, "debug_traceTransaction", "0x" + transaction.hex(), options))
    used = int(receipt["gasUsed"], 16)
    data = bytes.fromhex(sent["input"][2:])
    zeros = data.count(0)
    parts = Counter({"base and calldata": BASE + zeros * ZERO_BYTE + (len(data) - zeros) * OTHER_BYTE})
    parts.update(_by_kind(trace["structLogs"]))
    parts["computing"] = used - sum(parts.values())
    return Figure(name, used, "gas", note=", ".join(f"{kind} {gas:,}" for kind, gas in parts.items() if gas))


def _by_kind(steps: list[dict[str, Any]]) -> Counter[str]:
    parts: Counter[str] = Counter()
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        operation = step["op"]
        if operation in ("SLOAD", "SSTORE"):
            parts["storage"] += step["gasCost"]
        elif operation.startswith("LOG"):
            parts["events"] += step["gasCost"]
        elif operation == "STATICCALL" and following is not None and following["depth"] == step["depth"]:
            parts["precompiles"] += step["gas"] - following["gas"]
    return parts
