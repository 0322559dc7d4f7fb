"""Tabs with nodes, opened and topped up in advance: a drawn node without one could not be asked to work.

Every deposit is journalled before it is sent. One that was cut off by a restart is waited for, not sent twice: what
the chain shows after that decides.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from troth.chain.errors import ChainError, ChainRejected, GasTooDear, RpcRefused
from troth.protocol.market import messages
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.parts import Part
from troth.protocol.market.types import NO_ADDRESS, TabConsent, TabState
from troth.protocol.types import Address
from troth.scheduler.orders.context import Ledger
from troth.scheduler.tabs.database import SchedulerDatabase
from troth.scheduler.tabs.node_tabs import NodeTabs
from troth.transport.identity import Operator

log = logging.getLogger(__name__)

PENDING_BLOCKS = 20
"""Blocks for which a deposit is waited for that was sent, and of which nothing is known: before a restart, or because
it was not mined in time or its answer was lost."""

AT_ONCE = 16
"""Deposits under way at a time. Chain nodes hold back what one account sends beyond so many (Geth's account slots)."""


@dataclass(frozen=True, slots=True)
class Deposits:
    """How much a tab with a node starts with and is topped up by, and what may be left before that."""

    deposit: int
    least: int


class TabOpener:
    """Keeps tabs with nodes open and covered. One deposit at a time for each node."""

    def __init__(
        self,
        database: SchedulerDatabase,
        node_tabs: NodeTabs,
        ledger: Ledger,
        operator: Operator,
        *,
        deposits: Deposits,
    ) -> None:
        self._database = database
        self._node_tabs = node_tabs
        self._ledger = ledger
        self._operator = operator
        self._deposits = deposits
        self._locks: WeakValueDictionary[Address, asyncio.Lock] = WeakValueDictionary()

    async def keep(self, nodes: Iterable[Address]) -> None:
        """Open what is missing and top up what runs low, many at once, so that a new scheduler serves within blocks
        however many nodes there are. A node whose deposit fails keeps no other waiting.

        A scheduler that is leaving takes no orders. It only keeps covered what it promised, and so does any scheduler
        with nodes that are drawn no more: the gas of claims comes out of tabs, and a claim that is not covered
        convicts.
        """
        party = self._ledger.state.parties.get(self._operator.address)
        leaving = party is not None and bool(party.exit_block)
        served = {} if leaving else dict.fromkeys(nodes)
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(node: Address) -> None:
            async with slots:
                try:
                    if node in served:
                        await self._covered(node, self._deposits.least)
                    else:
                        await self._kept_covered(node)
                except ChainError as error:
                    log.warning("the tab with %s could not be opened or topped up: %s", node, error)

        async with asyncio.TaskGroup() as deposits:
            for node in served | dict.fromkeys(held.tab.payee for held in self._node_tabs):
                deposits.create_task(one(node))

    async def ensure(self, node: Address, price: int) -> None:
        """A tab with ``node`` that covers one more promise of ``price``; raises ChainError."""
        await self._covered(node, price)

    async def _covered(self, node: Address, least: int) -> None:
        async with self._lock(node):
            state = self._state(node)
            if state.closes_at:
                return  # this scheduler closes it: no work is promised on it
            if state.known and self._free(node, state) >= least:
                return
            await self._deposit(node, max(self._deposits.deposit, least), first=not state.known)

    async def _kept_covered(self, node: Address) -> None:
        """Add what an open tab lacks of what was authorised on it."""
        async with self._lock(node):
            state = self._state(node)
            free = self._free(node, state)
            if state.known and not state.closes_at and free < 0:
                await self._deposit(node, -free, first=False)

    def _lock(self, node: Address) -> asyncio.Lock:
        return self._locks.setdefault(node, asyncio.Lock())

    def _state(self, node: Address) -> TabState:
        return self._ledger.state.tab_state(self._node_tabs.held(node).book.tab)

    def _free(self, node: Address, state: TabState) -> int:
        """What a tab holds beyond all that was authorised on it; below 0 where it lacks something."""
        return state.balance + state.redeemed - self._node_tabs.held(node).book.authorised

    async def _deposit(self, node: Address, amount: int, *, first: bool) -> None:
        purpose = f"{'open' if first else 'top up'} {node}"
        rows = self._database.read("SELECT block FROM transactions WHERE purpose = ? AND outcome IS NULL", purpose)
        if rows and self._ledger.block < rows[0][0] + PENDING_BLOCKS:
            return  # sent before: it may still be mined
        begun = (purpose, self._ledger.block, time.time())
        await self._database.commit(
            ("INSERT OR REPLACE INTO transactions (purpose, block, at) VALUES (?, ?, ?)", begun)
        )
        try:
            block = await self._ledger.execute(self._call(node, amount, first=first), amount)
        except (ChainRejected, GasTooDear, RpcRefused):
            await self._note(purpose, "refused")
            raise
        await self._note(purpose, f"block {block}")
        log.info("%s with %d", purpose, amount)

    async def _note(self, purpose: str, outcome: str) -> None:
        """What became of a deposit; as long as that is not known, no other is made."""
        await self._database.commit(("UPDATE transactions SET outcome = ? WHERE purpose = ?", (outcome, purpose)))

    def _call(self, node: Address, amount: int, *, first: bool) -> PartCall:
        value = amount if self._ledger.parameters.asset == NO_ADDRESS else 0
        contracts, me = self._ledger.contracts, self._operator.address
        if first:
            consent = self._operator.sign(TabConsent(me, node))
            return build(contracts, Part.BANK, "openTab", node, me, amount, consent, value=value)
        tab = messages.tab_id(self._node_tabs.tab(node))
        return build(contracts, Part.BANK, "topUp", tab, amount, value=value)
