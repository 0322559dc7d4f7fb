"""What every party has, to the wei: wallets, stake, credit, what lies in its tabs, and what vouchers owe it.

A voucher is money once its payee holds it: it is worth what it pays beyond what was redeemed. Gas is counted apart,
so that a party that loses nothing but gas is told from one that loses money.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from adversaries.network import Network
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed
from troth.protocol.market.state import State
from troth.protocol.market.types import PotKind, Voucher
from troth.protocol.types import Address, Hash32, to_address
from troth.scheduler.tabs.client_tabs import Kept

LIMIT = 1 << 14
READ_TOGETHER = 100
"""Blocks whose receipts are asked for in one request."""
OWN = (PotKind.STAKE, PotKind.LOCKED, PotKind.CREDIT)


@dataclass
class Count:
    """Party to wei; ``gas`` is what was paid for transactions, ``burnt`` what nobody has any more."""

    wealth: Counter[str] = field(default_factory=Counter)
    gas: Counter[str] = field(default_factory=Counter)
    burnt: int = 0

    def since(self, before: Count) -> Count:
        """What changed."""
        wealth = Counter({name: self.wealth[name] - before.wealth[name] for name in self.wealth})
        gas = Counter({name: self.gas[name] - before.gas[name] for name in self.gas})
        return Count(wealth, gas, self.burnt - before.burnt)


class Accountant:
    """Counts one network's money again and again; it reads each block once."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._names = _names(network)
        self._gas: Counter[str] = Counter()
        self._read = int(network.chain.rpc("eth_blockNumber"), 16)

    @property
    def names(self) -> dict[Address, str]:
        """Account to party: an owner's money is its operator's."""
        return self._names

    def meet(self, account: Address, name: str) -> None:
        """From the next count on, this account's money is this party's."""
        self._names[account] = name

    async def count(self) -> Count:
        """What everybody has now."""
        follower = self._network.follower
        await follower.catch_up()
        # One block for all that is on chain: what is mined while this counts is not seen by halves.
        return await asyncio.to_thread(self._count, follower.state, follower.block)

    def _count(self, state: State, block: int) -> Count:
        self._read_gas(block)
        found = Count(gas=Counter(self._gas))
        for account, name in self._names.items():
            found.wealth[name] += int(self._network.chain.rpc("eth_getBalance", account, hex(block)), 16)
            found.wealth[name] += sum(state.pot(kind, account) for kind in OWN)
        for name, spent in self._gas.items():
            found.wealth[name] += spent
        held = self._vouchers()
        for identifier, record in state.tabs.items():
            payer, payee = self._names.get(record.tab.payer), self._names.get(record.tab.payee)
            tab = state.tab_state(identifier)
            owed = max(held.get(identifier, 0) - tab.redeemed, 0)
            if payer is not None and payee is not None:
                found.wealth[payer] += tab.balance - owed
                found.wealth[payee] += owed
        found.burnt = state.pots.get((PotKind.BURNT, Hash32(bytes(32))), 0)
        return found

    def _vouchers(self) -> dict[Hash32, int]:
        """The best voucher of every tab, as its payee has it on disk."""
        plan, found = self._network.plan, spent_with_scheduler(self._network)
        for number in range(len(plan.ports) - 1):
            for tab, word in rows_of(plan.home(f"node {number}") / "market.sqlite", "SELECT tab, voucher FROM tabs"):
                found[Hash32(tab)] = canonical.decode(Signed[Voucher], word, LIMIT).message.spent
        return found

    def _read_gas(self, newest: int) -> None:
        while self._read < newest:
            blocks = range(self._read + 1, min(self._read + READ_TOGETHER, newest) + 1)
            found = self._network.chain.rpc_many("eth_getBlockReceipts", [[hex(number)] for number in blocks])
            for receipt in chain.from_iterable(one or () for one in found):
                name = self._names.get(to_address(receipt["from"]))
                if name is not None:
                    self._gas[name] += int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
            self._read = blocks[-1]


def spent_with_scheduler(network: Network) -> dict[Hash32, int]:
    """What each client's tab pays by the word on which the scheduler stands, as it has it on disk."""
    found: dict[Hash32, int] = {}
    for tab, data in rows_of(network.plan.home("scheduler") / "market.sqlite", "SELECT tab, data FROM client_tab"):
        kept = canonical.decode(Kept, data, LIMIT)
        found[Hash32(tab)] = kept.best.message.spent if kept.best else 0
    return found


def open_work(network: Network, orders: set[bytes]) -> int:
    """Promises of these orders that nodes have worked for and that no voucher pays yet."""
    count = 0
    query = "SELECT order_id FROM leaves WHERE acknowledged = 0 AND stage = 1"
    for number in range(len(network.plan.ports) - 1):
        for (order,) in rows_of(network.plan.home(f"node {number}") / "market.sqlite", query):
            count += bytes(order) in orders
    return count


def paid_work(network: Network, orders: set[bytes]) -> int:
    """What vouchers pay nodes for their work on these orders."""
    paid = 0
    query = "SELECT order_id, worth FROM leaves WHERE acknowledged = 1"
    for number in range(len(network.plan.ports) - 1):
        rows = rows_of(network.plan.home(f"node {number}") / "market.sqlite", query)
        paid += sum(int(worth) for order, worth in rows if bytes(order) in orders)
    return paid


def _names(network: Network) -> dict[Address, str]:
    stage, names = network.stage, dict[Address, str]()
    for number, node in enumerate(stage.nodes):
        names[node.address] = names[stage.owner_of(node).address] = f"node {number}"
    names[stage.scheduler.address] = names[stage.owner_of(stage.scheduler).address] = "scheduler"
    for client in network.clients.values():
        names[client.key.address] = client.name
    return names


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    """What a party's database says; nothing before there is one."""
    if not path.exists():
        return []
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as database:
        return database.execute(query).fetchall()
