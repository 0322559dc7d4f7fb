"""Gas a task of a running network, all of it: tabs, redemptions of everybody, log entries, checks by the lottery."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

from benchmarks.figures import Figure
from benchmarks.market.running.load import Load
from benchmarks.market.running.toy_network import QUICK_BLOCK, ToyNetwork
from troth.protocol.market.parts import Part
from troth.scheduler.log.entries import ENTRY_ORDERS
from troth.testnet.anvil import rpc

BATCH = 250
SETTLE_SECONDS = 600.0
QUIET_SECONDS = 20.0
REACH = 500
BEFORE = 740_000
"""Of the per-task way: what a task cost there."""


async def measure(network: ToyNetwork, count: int, concurrent: int, report: Callable[[str], None]) -> list[Figure]:
    """Serve ``count`` tasks, wait until all is acknowledged, logged and redeemed, and count the gas of every block."""
    network.mine_every(QUICK_BLOCK)
    load = Load(network, concurrent=concurrent, reveals=True)
    done = failed = 0
    # One more than the entries hold: an entry is closed by the order after its last one.
    while done < count + 1:
        orders = load.signed(min(BATCH, count + 1 - done))
        seconds = await load.send(orders)
        done += len(orders)
        failed += sum(bool(one.failure) for one in orders)
        left = await load.acknowledge()
        report(f"{done:,} of {count:,} tasks, {len(orders) / seconds:.0f} a second, {left:,} not acknowledged yet")
    await _settled(network, load, count // ENTRY_ORDERS, report)
    gas = _gas(network)
    total = sum(gas.values())
    parts = ", ".join(f"{name} {value / count:.0f}" for name, value in gas.most_common())
    note = f"{count:,} tasks on {len(network.clients)} tabs, {load.checked:,} checked, {failed} failed; a task: {parts}"
    return [Figure("gas a task of a running network", round(total / count), "gas", BEFORE, REACH, note)]


async def _settled(network: ToyNetwork, load: Load, entries: int, report: Callable[[str], None]) -> None:
    """Until everything is acknowledged and posted, and nobody has sent anything for a while."""
    begun, quiet, before = time.monotonic(), time.monotonic(), -1
    while time.monotonic() < begun + SETTLE_SECONDS:
        left = await load.acknowledge()
        gas = _gas(network)
        posted = sum(1 for name in gas if name.endswith("log")) and _calls(network, Part.LOG)
        if sum(gas.values()) != before:
            before, quiet = sum(gas.values()), time.monotonic()
        if not left and posted >= entries and time.monotonic() > quiet + QUIET_SECONDS:
            return
        report(f"waiting: {left} tasks not acknowledged, {posted} of {entries} entries posted")
        await asyncio.sleep(5)
    raise RuntimeError(f"not everything was acknowledged and posted within {SETTLE_SECONDS:.0f} s")


def _receipts(network: ToyNetwork) -> list[dict[str, str]]:
    head = int(str(rpc(network.rpc, "eth_blockNumber")), 16)
    found: list[dict[str, str]] = []
    for number in range(network.started_at + 1, head + 1):
        receipts = rpc(network.rpc, "eth_getBlockReceipts", hex(number))
        assert isinstance(receipts, list)
        found += receipts
    return found


def _calls(network: ToyNetwork, part: Part) -> int:
    to = part.of(network.stage.market.contracts).lower()
    return sum(str(one["to"]).lower() == to for one in _receipts(network))


def _gas(network: ToyNetwork) -> Counter[str]:
    """By who sent to which contract."""
    contracts = network.stage.market.contracts
    parts = {part.of(contracts).lower(): part.value.lower() for part in Part}
    senders = {network.stage.scheduler.address.lower(): "scheduler"}
    senders |= {node.address.lower(): "nodes" for node in network.stage.nodes}
    gas: Counter[str] = Counter()
    for one in _receipts(network):
        sender = senders.get(str(one["from"]).lower(), "clients")
        gas[f"{sender} to {parts.get(str(one['to']).lower(), 'others')}"] += int(one["gasUsed"], 16)
    return gas
