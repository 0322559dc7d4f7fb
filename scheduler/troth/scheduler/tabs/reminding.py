"""Whether these records hold all that was promised to nodes: at each start every node is asked.

Records may be lost with their disk, or be a copy of yesterday. Nodes refuse words that go backwards, and numbers that
they know, so that nobody would serve this scheduler any more. And it could admit an order a second time, which
convicts. So it sends no order to a node that it has not heard, goes on from what nodes hold, and takes no order over a
block from before it learned that its own records are behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

from troth.protocol.errors import ProtocolError
from troth.protocol.market import canonical, reminders
from troth.protocol.market.checks import DRAW_AGE
from troth.protocol.market.messages import tab_id
from troth.protocol.market.reminders import PROMISES_SHOWN, REMINDER_LIMIT, OpenPromise, Reminder
from troth.protocol.market.signed import Work
from troth.protocol.market.tabs import PayerBook
from troth.protocol.types import Address
from troth.protocol.wire_market import Remind, Reminded
from troth.scheduler.nodes.peers import Peers
from troth.scheduler.orders.context import Ledger
from troth.scheduler.tabs.database import SchedulerDatabase, StorageFailed
from troth.scheduler.tabs.node_tabs import NodeTabs, Owed
from troth.transport.errors import OverlayError
from troth.transport.identity import Operator

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
ASKED_TOGETHER = 64
NODE_SECONDS = 60.0
"""For all pages of one node, which holds a place meanwhile."""
LOOK_SECONDS = 1.0
"""How long one look waits for answers."""
START_SECONDS = 20.0
"""For which a start waits for answers; whoever has not answered by then is heard beside the orders."""


class NodeReminders:
    """Asks nodes, each until it has answered once."""

    def __init__(
        self,
        database: SchedulerDatabase,
        node_tabs: NodeTabs,
        ledger: Ledger,
        operator: Operator,
        peers: Peers,
    ) -> None:
        self._database = database
        self._node_tabs = node_tabs
        self._ledger = ledger
        self._operator = operator
        self._peers = peers
        self._heard: set[Address] = set()
        self._tried: set[Address] = set()
        self._asking: dict[Address, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(ASKED_TOGETHER)
        self._noted = True
        behind = database.behind()
        node_tabs.fence = 0 if behind < 0 else min(behind, ledger.block) + DRAW_AGE
        node_tabs.order_only_from(self._heard)

    async def hear(self, nodes: Iterable[Address], seconds: float = LOOK_SECONDS) -> None:
        """Ask whoever has not answered yet, and wait a little for the answers; whoever is still asked is not asked
        twice, and one that is away is asked again the next time."""
        for node in dict.fromkeys(nodes):
            if node not in self._heard and node not in self._asking:
                task = self._asking[node] = asyncio.create_task(self._hear(node))
                task.add_done_callback(partial(self._answered, node))
        if self._asking:
            await asyncio.wait(list(self._asking.values()), timeout=seconds)

    async def close(self) -> None:
        """Ask nobody any more."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _answered(self, node: Address, _task: asyncio.Task[None]) -> None:
        self._asking.pop(node, None)

    def with_tabs(self) -> list[Address]:
        """Nodes with which this scheduler has a tab on chain, or had one."""
        me = self._operator.address
        return [record.tab.payee for record in self._ledger.state.tabs.values() if record.tab.payer == me]

    async def _hear(self, node: Address) -> None:
        if tab_id(self._node_tabs.tab(node)) not in self._ledger.state.tabs:
            self._heard.add(node)  # nothing was ever promised: there was no tab
            return
        try:
            left = node in self._node_tabs.refusing  # perhaps no member any more, so that nobody else looks after it
            if node in self._tried and not left and not self._peers.channel(node).connected:
                return  # connections are looked after elsewhere
            self._tried.add(node)
            async with self._places, asyncio.timeout(NODE_SECONDS):
                await self._take(node, await self._asked(node))
        except (OverlayError, ProtocolError, StorageFailed, TimeoutError) as error:
            log.info("%s has not said what was promised to it: %s", node, error)
            return
        self._heard.add(node)

    async def _take(self, node: Address, reminder: Reminder) -> None:
        """Go on from what a node holds, if that is more than these records do.

        Nothing is gone on from that is not stored: asked again, a node would seem to hold no more than is known.
        """
        held = self._node_tabs.held(node)
        if not self._is_behind(node, reminder):
            return
        log.warning("%s holds words of this scheduler that its records do not have: they are lost or old", node)
        if self._is_news(reminder):
            await self._note_behind()
        while self._is_behind(node, reminder):
            before, book = held.book, reminders.caught_up(held.book, reminder)
            await self._database.commit(*self._node_tabs.caught_up(node, book, self._owed_after(book, node, reminder)))
            if held.book is before:  # else a check was promised meanwhile
                self._node_tabs.catch_up(node, book, self._owed_after(book, node, reminder))

    def _is_behind(self, node: Address, reminder: Reminder) -> bool:
        """Whether a node holds words that these records do not know, or gave out its number of other work again."""
        held = self._node_tabs.held(node)
        shown = ((held.owed.get(one.number), self._owed(node, one)) for one in reminder.promises)
        twice = any(own is not None and not own.is_same_work(one) for own, one in shown)
        return twice or reminders.is_behind(held.book, reminder)

    def _is_news(self, reminder: Reminder) -> bool:
        """Whether an order may have been admitted that is younger than what is known to be lost.

        A node could else show its words one by one, and have all orders refused for some blocks with each of them.
        """
        fence, age = self._node_tabs.fence, self._ledger.parameters.reference_age
        young = any(one.promise.message.reference_block >= fence for one in reminder.promises)
        return not self._noted or young or self._ledger.block > fence + age

    async def _asked(self, node: Address) -> Reminder:
        """All pages; each promise is this scheduler's own, so that there are only so many."""
        tab, after, found = tab_id(self._node_tabs.tab(node)), 0, dict[int, OpenPromise]()
        while True:
            frame = await self._peers.channel(node).request(Remind(after), b"", ANSWER_SECONDS)
            if not isinstance(frame.header, Reminded):
                raise OverlayError("An answer to another question", type(frame.header).__name__, "Run this version.")
            page = canonical.decode(Reminder, frame.payload, REMINDER_LIMIT)
            reminders.require_own(page, tab, self._operator.address, self._operator.domain)
            found |= {one.number: one for one in page.promises if one.number > after}
            newest = max(found, default=after)
            if len(page.promises) < PROMISES_SHOWN or newest == after:
                return Reminder(page.voucher, tuple(found[number] for number in sorted(found)))
            after = newest

    def _owed_after(self, book: PayerBook, node: Address, reminder: Reminder) -> dict[int, Owed]:
        """What these records know of a number comes first, unless they gave it out a second time: its node refuses
        that work, and holds the promise of the first."""
        shown = {one.number: self._owed(node, one) for one in reminder.promises}
        known = self._node_tabs.held(node).owed.items()
        both = shown | {number: one for number, one in known if one.is_same_work(shown.get(number, one))}
        return {number: one for number, one in both.items() if number in book.bounds}

    async def _note_behind(self) -> None:
        """What was admitted by now these records do not know; known at once, and news until it is stored."""
        block, self._noted = self._ledger.block, False
        self._node_tabs.fence = block + DRAW_AGE
        await self._database.commit(("DELETE FROM behind", ()), ("INSERT INTO behind VALUES (?)", (block,)))
        self._noted = True

    def _owed(self, node: Address, one: OpenPromise) -> Owed:
        """What is owed for a promise of which these records know nothing but what its node shows."""
        promised, lag = one.promise.message, self._ledger.parameters.lag
        worth = reminders.worth(one, node, self._operator.domain)
        # A verdict that denies may be owed for a while; for what was cut off nothing is owed at all.
        waits = lag if worth else 2 * lag if one.verdict is not None else 0
        return Owed(promised.order, promised.segment, Work(promised.work), worth, self._ledger.block + waits)


async def reminded(
    database: SchedulerDatabase, node_tabs: NodeTabs, ledger: Ledger, operator: Operator, peers: Peers
) -> NodeReminders:
    """Who asks, once nodes had time to answer: before anything is admitted, so that old records are noticed."""
    made = NodeReminders(database, node_tabs, ledger, operator, peers)
    # Nodes that left long ago do not answer, and there may be thousands of them.
    await made.hear(made.with_tabs(), START_SECONDS)
    return made
