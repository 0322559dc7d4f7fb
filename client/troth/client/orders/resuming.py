"""Orders that a process left behind: what is asked of others until each is ended, or waits for a block.

Whose turn an order is, is written down (``OrderJournal.take``), so that two processes never undo each other's steps.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from troth.client.orders.calls import SchedulerRefusal
from troth.client.orders.checking import OrderSettlement
from troth.client.orders.course import Course
from troth.client.orders.errands import Backoff, Errands
from troth.client.orders.evidence import served_of
from troth.client.orders.failing import OrderFailed, unknown_until
from troth.client.orders.journal import RUNNING, OrderRecord, Phase
from troth.client.orders.judging import go_to_court
from troth.client.orders.own_check import check_by_self, own_verdict_of
from troth.client.orders.paying import give_up, owed_now
from troth.client.orders.session import FAILURES, PayerSession, TabContext
from troth.client.orders.updates import CourseStep
from troth.client.tabs.books import OwnTab
from troth.client.tabs.errors import StoreUnusable
from troth.client.tabs.recovery import recover
from troth.protocol.market.bodies import Admitted, OpenOrder, Submission
from troth.protocol.market.signed import Opinion
from troth.protocol.types import ZERO_HASH

UNKNOWN_SECONDS = 5.0
"""After which an order whose sending broke off is looked after again."""
READING_SECONDS = 120.0
"""After which reading one is broken off and begun again later: it is given all lines so far at once, and a scheduler
that says a word every few seconds takes no place for long."""
TOGETHER = 64
"""Orders of one tab that are asked after at once."""
FORGOTTEN_BLOCKS = 1_000
"""After which it is forgotten that an order's admission was unknown."""
TOO_LATE = "too_late"
"""A scheduler's word for an order whose prompt and answer nobody may ask for any more."""
_log = logging.getLogger(__name__)

Report = Callable[[OrderRecord | None, str], None]
"""Hears a line, about an order or about none."""


@dataclass
class Resumer:
    """Takes orders up where a process left them, each as an errand of its own."""

    session: PayerSession
    errands: Errands
    report: Report
    backoff: Backoff = field(default_factory=Backoff)
    since: float = field(default_factory=lambda: int(time.time()))
    unknown: dict[bytes, int] = field(default_factory=dict)
    """Orders whose admission is unknown, each with the last block in which it may be admitted."""
    _own_model: asyncio.Lock = field(default_factory=asyncio.Lock)

    def forget(self) -> None:
        """Let go of what is over."""
        block = self.session.block
        self.backoff.forget()
        self.unknown = {order: last for order, last in self.unknown.items() if block <= last + FORGOTTEN_BLOCKS}

    def resume(self, record: OwnTab, entry: OrderRecord) -> None:
        """Begin what is to be asked for an order of which nothing is owed yet."""
        order, what = entry.identifier, f"order {entry.name[:12]}"
        if is_undecided(entry) and self.backoff.is_time(order):
            # One look shows all orders of a tab.
            self.errands.begin(b"find out" + record.identifier, what, partial(self._find_out, entry))
        if entry.phase is Phase.REJECTED:
            self._bring(entry)
        name = record.identifier + order
        if not _goes_on(entry) or self.errands.runs(name) or self.errands.count(record.identifier) >= TOGETHER:
            return
        if self._is_certain(entry) or self.backoff.is_time(order):
            self.errands.begin(name, what, partial(self._taken, entry))

    def compute_again(self, entry: OrderRecord) -> None:
        """An answer that its user wants computed again, as long as it can still be doubted in court.

        The process that asked does it at once; this is for one that ended before.
        """
        own = own_verdict_of(entry)
        if own is None and entry.created < self.since and self.session.own_model is not None:
            what = f"order {entry.name[:12]}"
            self.errands.begin(b"own" + entry.identifier, what, partial(self._compute, entry))
        if own is not None and own.opinion is Opinion.REJECT:
            self._bring(entry)

    def _bring(self, entry: OrderRecord) -> None:
        """To the court."""
        name = b"case" + entry.identifier
        if self.session.opener is not None and "court" not in entry.evidence and self.backoff.is_time(name):
            self.errands.begin(name, f"order {entry.name[:12]}", partial(self._to_court, entry))

    async def _find_out(self, entry: OrderRecord) -> None:
        """What became of an order that was taken over while it ran."""
        self.backoff.put_off(entry.identifier)
        try:
            await find_out(self.session, self.session.tab_context_of(entry.tab), entry)
        except StoreUnusable:
            raise
        except FAILURES as error:
            _log.info("an order that was taken over is looked after again later: %s", type(error).__name__)

    async def _compute(self, entry: OrderRecord) -> None:
        async with self._own_model:
            if not self.session.journal.take(entry.identifier):
                return
            try:
                own = await check_by_self(self.session, entry)
            finally:
                self.session.journal.release(entry.identifier)
        if own is not None:
            self.report(entry, f"own model: {own.words}")
            if own.opinion is Opinion.REJECT:
                self._bring(self.session.journal.entry(entry.identifier))

    async def _to_court(self, entry: OrderRecord) -> None:
        try:
            line = await go_to_court(self.session, entry)
        except StoreUnusable:
            raise
        except FAILURES as error:
            self.backoff.put_off(b"case" + entry.identifier)
            _log.info("an answer is brought to the court later: %s", type(error).__name__)
            return
        self.session.journal.step(entry.identifier, court=line.encode())
        self.report(entry, line)

    # ---- one order

    async def _taken(self, entry: OrderRecord) -> None:
        """Go on, unless somebody else does."""
        if not self.session.journal.take(entry.identifier):
            return
        try:
            # Who had it until now may have ended it since it was read: begun again, its end would be forgotten.
            entry = self.session.journal.entry(entry.identifier)
            if owed_now(self.session, entry) is None and _goes_on(entry):
                await self._go_on(self.session.tab_context_of(entry.tab), entry)
        finally:
            self.session.journal.release(entry.identifier)

    async def _go_on(self, tab_context: TabContext, entry: OrderRecord) -> None:
        """Take an order up where a process left it."""
        try:
            if entry.phase in {Phase.ORDERED, Phase.ADMITTED, Phase.ANSWERED}:
                async with asyncio.timeout(READING_SECONDS):
                    await self._ask_again(tab_context, entry)
                entry = self.session.journal.entry(entry.identifier)
            if served_of(entry) is not None and _goes_on(entry):
                await _run_out(OrderSettlement(self.session, tab_context, entry).run())
        except StoreUnusable:
            raise
        except FAILURES as error:
            self.backoff.put_off(entry.identifier)
            _log.info("an order is looked after again later: %s", type(error).__name__)
        else:
            after = self.session.journal.entry(entry.identifier)
            if after.phase is entry.phase:
                self.backoff.put_off(entry.identifier)

    async def _ask_again(self, tab_context: TabContext, entry: OrderRecord) -> None:
        submission = entry.submission
        if submission is None:
            return
        calls = await self.session.calls(tab_context)
        course = Course(self.session, tab_context, entry)
        lines = calls.again(entry.identifier, submission.salt)
        try:
            await _run_out(course.read(lines, patience=UNKNOWN_SECONDS, resumed=True))
        except OrderFailed:
            return
        except SchedulerRefusal as error:
            if error.status == 404 and entry.phase is Phase.ORDERED and self._never_arrived(entry, submission):
                return
            if self._kept_no_longer(entry, submission, error):
                return
            raise

    def _is_certain(self, entry: OrderRecord) -> bool:
        """Whether what was unknown of an order is certain since the last look: that is not put off."""
        certain = self.session.block > self.unknown.get(entry.identifier, self.session.block)
        if certain:
            del self.unknown[entry.identifier]
        return certain

    def _never_arrived(self, entry: OrderRecord, submission: Submission) -> bool:
        """Give an order up that its scheduler does not know and may not admit any more; False: it may still arrive.

        A voucher that paid nothing for it before that would be refused, and so would each later one of its tab.
        """
        last = unknown_until(submission.order.message, self.session.parameters)
        if self.session.block > last:
            give_up(self.session, entry, f"never admitted: nobody may admit it after block {last}")
            return True
        self.unknown[entry.identifier] = last
        failure = f"its scheduler does not know it: whether it is admitted is unknown until block {last}"
        self.session.journal.step(entry.identifier, failure=failure)
        return False

    def _kept_no_longer(self, entry: OrderRecord, submission: Submission, error: SchedulerRefusal) -> bool:
        """End an order whose results cannot be summoned any more, and of which its scheduler has nothing left.

        Nothing is paid for it: were it owed, a claim on chain would show the results.
        """
        admitted = entry.read("admitted", Admitted)
        if admitted is not None:
            since = admitted.admission.message.block_number
        else:
            since = unknown_until(submission.order.message, self.session.parameters)
        gone = error.code == TOO_LATE or (error.status == 404 and admitted is not None)
        if not gone or self.session.block <= since + self.session.parameters.lag:
            return False
        failure = "asked for after its scheduler had to keep it: nothing is acknowledged for it"
        self.session.journal.step(entry.identifier, Phase.REFUSED_CHECK, failure=failure)
        return True


def _goes_on(entry: OrderRecord) -> bool:
    """A check that was late may have been done since, and a summons may have brought it."""
    return entry.phase in RUNNING or entry.phase is Phase.REFUSED_CHECK


async def _run_out(steps: AsyncGenerator[CourseStep, None]) -> None:
    async with aclosing(steps):
        async for _ in steps:
            continue


def is_undecided(entry: OrderRecord) -> bool:
    """Whether nobody has shown yet what an order of another copy of this folder, or of before a backup, costs."""
    shown = entry.read("recovered", OpenOrder) if entry.phase is Phase.RECOVERED else None
    return shown is not None and shown.draw is None


async def find_out(session: PayerSession, tab_context: TabContext, entry: OrderRecord) -> None:
    """Ask the scheduler of an order that was taken over for the draw, and later whether it failed.

    Its request is not here, so that nobody can follow it. One of which nothing can be summoned any more is given up
    once its scheduler says that it failed. Raises what asking raises.
    """
    calls = await session.calls(tab_context)
    await recover(session, tab_context, calls)
    entry = session.journal.entry(entry.identifier)
    shown = entry.read("recovered", OpenOrder)
    if shown is None or not is_undecided(entry) or entry.paid is not None:
        return
    last = unknown_until(shown.order.message, session.parameters) + session.parameters.lag
    if session.block <= last:
        return
    # Whoever knows its id hears that it failed, once its prompt is kept no longer; the salt is not here.
    async with aclosing(calls.again(entry.identifier, ZERO_HASH)) as lines:
        line = await anext(lines, None)
    if line is not None and line.get("type") == "failed":
        give_up(session, entry, "given up by its scheduler, before it was taken over here")
