"""What a scheduler does by itself, for as long as it runs: each duty is supervised, so that none ends for ever.

To acknowledge to nodes, it enters what is due into the books, and sends the newer word to the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from troth.chain.duty import Duty
from troth.protocol.errors import ProtocolError
from troth.protocol.identifiers import group_id
from troth.protocol.market import canonical
from troth.protocol.types import Address
from troth.protocol.wire_market import Noted, Redeemable
from troth.scheduler.checks.summons import SummonsDuty
from troth.scheduler.errors import SchedulerError
from troth.scheduler.orders.context import SchedulerContext
from troth.scheduler.orders.service import Orders
from troth.scheduler.tabs.claiming import attend_claims, attend_nodes_claims, claim_due
from troth.scheduler.tabs.due import decision, rejections_decided
from troth.scheduler.tabs.node_tabs import NodeTab
from troth.scheduler.tabs.opening import TabOpener
from troth.scheduler.tabs.redeeming import redeem
from troth.scheduler.tabs.reminding import NodeReminders
from troth.transport.errors import OverlayError

log = logging.getLogger(__name__)

DELIVERY_SECONDS = 10.0
WARM_SECONDS = 5.0
"""Until a node that does not connect counts as failed: a connection that stands costs a first token nothing."""


async def acknowledge_nodes(context: SchedulerContext) -> None:
    """Acknowledge what is due, store it, and tell every node whose word is newer than the one it has noted."""
    ledger, store = context.ledger, context.store
    lag = ledger.parameters.lag
    decided = rejections_decided(context.node_tabs, ledger.state, store.get, ledger.block, lag)
    due = context.node_tabs.acknowledge_due(ledger.block, decision(ledger.state, store.get))
    if decided or due:
        await context.database.commit(*decided, *due)
    behind = [held for held in context.node_tabs if held.book.spent > held.delivered]
    await asyncio.gather(*[_deliver(context, held) for held in behind])


async def _deliver(context: SchedulerContext, held: NodeTab) -> None:
    """A node that is away hears it with its next promise, or the next time."""
    spent, sent = held.book.spent, canonical.encode(context.node_tabs.voucher(held.node))
    try:
        frame = await context.peers.channel(held.node).request(Redeemable(), sent, DELIVERY_SECONDS)
    except (OverlayError, ProtocolError) as error:
        log.debug("%s did not note its newest voucher: %s", held.node, error)
        return
    if isinstance(frame.header, Noted):
        held.delivered = max(held.delivered, spent)


@dataclass(frozen=True, slots=True)
class DutyPace:
    """Seconds between two looks: at what has deadlines, at money, and at what may be forgotten."""

    urgent: float = 1.0
    money: float = 15.0
    slow: float = 60.0


class SchedulerDuties:
    """Runs all duties; ``reasons`` says which of them fail."""

    def __init__(
        self,
        orders: Orders,
        opener: TabOpener,
        *,
        times: int,
        pace: DutyPace | None = None,
        reminders: NodeReminders | None = None,
    ) -> None:
        self._orders = orders
        self._reminders = reminders
        self._opener = opener
        self._times = times
        self._pace = pace or DutyPace()
        self._summons = SummonsDuty(orders)
        self._duties: list[Duty] = []

    def start(self) -> None:
        """Begin; ends with ``stop``."""
        context, pace = self._orders.context, self._pace
        self._run("answering summons", pace.urgent, self._summons.look)
        self._run("answering objections", pace.urgent, lambda: attend_claims(context))
        self._run("objecting to claims", pace.urgent, lambda: attend_nodes_claims(context))
        self._run("acknowledging nodes", pace.urgent, lambda: acknowledge_nodes(context))
        if (reminders := self._reminders) is not None:
            self._run("hearing nodes", pace.urgent, lambda: reminders.hear(to_hear(self._orders)))
        self._run("keeping tabs with nodes", pace.money, lambda: self._opener.keep(nodes_of(self._orders)))
        self._run("staying connected to nodes", pace.money, self._connect)
        self._run("taking up what was cut off", pace.money, self._orders.resume)
        self._run("asking silent verifiers again", pace.money, self._orders.ask_again)
        self._run("redeeming and claiming", pace.money, self._collect)
        self._run("posting the log", pace.money, self._orders.book.post_due)
        self._run("noting the block", pace.money, lambda: context.database.note_block(context.ledger.block))
        self._run("forgetting what is owed no more", pace.slow, self._orders.forget_old)

    async def stop(self) -> None:
        """End all; what they began goes on at the next start."""
        await asyncio.gather(*[duty.stop() for duty in self._duties])
        await self._summons.abandon()
        if self._reminders is not None:
            await self._reminders.close()

    def reasons(self) -> list[str]:
        """Which duties fail now, and why."""
        return [f"{duty.name} fails: {duty.trouble[:300]}" for duty in self._duties if duty.trouble]

    async def _connect(self) -> None:
        await self._orders.context.peers.warm(nodes_of(self._orders), WARM_SECONDS)

    async def _collect(self) -> None:
        await redeem(self._orders.context, self._times)
        await claim_due(self._orders.context, self._times)

    def _run(self, name: str, seconds: float, work: Callable[[], Awaitable[object]]) -> None:
        # No pause grows: what is urgent has deadlines, which an error does not move.
        self._duties.append(Duty(name, work, every=seconds, longest=seconds).start())


def to_hear(orders: Orders) -> list[Address]:
    """Who says what was promised to it before more is."""
    return [*nodes_of(orders), *orders.context.node_tabs.refusing]


def nodes_of(orders: Orders) -> list[Address]:
    """Members of the groups of all classes as they are offered now: who may be drawn by the next order."""
    context = orders.context
    state, found = context.ledger.state, dict[Address, None]()
    for class_id in context.offers.ids():
        try:
            offer = context.offers.offer(class_id, state)
        except SchedulerError:
            continue
        for span in offer.spans:
            members = state.members_at(group_id(class_id, span), context.ledger.block)
            found |= dict.fromkeys(entry.operator for entry in members if entry.seats)
    return list(found)
