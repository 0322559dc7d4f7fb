"""What goes on in the background: orders that a process left behind, payments that are due, words to deliver.

It decides from what is written down and from blocks on chain alone, so it survives restarts and may run in several
processes: a step that another one has taken is not there to be taken again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from types import TracebackType

from troth.chain.errors import ChainError
from troth.client.orders.calls import SchedulerRefusal
from troth.client.orders.checking import OrderSettlement
from troth.client.orders.course import Course
from troth.client.orders.evidence import served_of
from troth.client.orders.failing import OrderFailed, unknown_until
from troth.client.orders.following import fell
from troth.client.orders.journal import RUNNING, OrderRecord, Phase
from troth.client.orders.judging import go_to_court
from troth.client.orders.objecting import Objector
from troth.client.orders.own_check import MODE, check_by_self, own_verdict_of
from troth.client.orders.paying import give_up, pay
from troth.client.orders.session import FAILURES, PayerSession, TabContext
from troth.client.orders.summoning import AutomaticSummons, due_of, first_by_itself
from troth.client.orders.taken_over import find_out, is_undecided
from troth.client.orders.updates import CourseStep
from troth.client.tabs.books import OwnTab
from troth.client.tabs.claims_paid import acknowledge_claimed
from troth.client.tabs.errors import StoreUnusable
from troth.protocol.market import checks, life, messages, prices
from troth.protocol.market.bodies import Acknowledgement, Admitted, OpenOrder, Submission
from troth.protocol.market.messages import case_id
from troth.protocol.market.signed import Opinion

INTERVAL = 1.0
LONGEST_BACKOFF = 60.0
UNKNOWN_SECONDS = 5.0
"""After which an order whose sending broke off is looked after again."""
FORGOTTEN_SECONDS = 600.0
"""After which it is forgotten that something failed which nobody tries any more."""
FORGOTTEN_BLOCKS = 1_000
"""After which the same holds for an order whose admission was unknown."""
LINES_REMEMBERED = 1_000
"""Lines about claims that are not said twice."""
TOO_LATE = "too_late"
"""A scheduler's word for an order whose prompt and answer nobody may ask for any more."""
_log = logging.getLogger(__name__)

Report = Callable[[OrderRecord | None, str], None]
"""Hears a line, about an order or about none."""


def unheard(_entry: OrderRecord | None, _line: str) -> None:
    """Nobody listens."""


class Backoff:
    """What failed and is tried again later, longer after each time in a row; forgotten where nobody tries it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._put_off: dict[bytes, tuple[int, float]] = {}

    def is_time(self, what: bytes) -> bool:
        """Whether it may be tried now."""
        _, until = self._put_off.get(what, (0, 0.0))
        return self._clock() >= until

    def put_off(self, what: bytes) -> None:
        """It failed, or is to rest."""
        tries = self._put_off.get(what, (0, 0.0))[0] + 1
        self._put_off[what] = tries, self._clock() + min(2.0**tries, LONGEST_BACKOFF)

    def succeeded(self, what: bytes) -> None:
        """It went well: the next failure is the first one again."""
        self._put_off.pop(what, None)

    def forget(self) -> None:
        """Let go of what nobody has tried for a while."""
        oldest = self._clock() - FORGOTTEN_SECONDS
        self._put_off = {what: kept for what, kept in self._put_off.items() if kept[1] > oldest}


@dataclass
class OrderKeeper:
    """Use it with ``async with``; ``once`` does everything that is due now. ``report`` hears what it did by itself."""

    session: PayerSession
    summons: AutomaticSummons | None = None
    report: Report = unheard
    objector: Objector | None = None
    _since: float = field(default_factory=lambda: int(time.time()))
    _task: asyncio.Task[None] | None = None
    _backoff: Backoff = field(default_factory=Backoff)
    _told: dict[str, None] = field(default_factory=dict)
    _looked: dict[bytes, int] = field(default_factory=dict)
    _unknown_until: dict[bytes, int] = field(default_factory=dict)

    async def __aenter__(self) -> OrderKeeper:
        self._task = asyncio.create_task(self._run(), name="keeper of tabs")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self.once()
            except Exception as error:  # noqa: BLE001 - claims are objected to whatever failed; a message may hold a prompt
                # A full disk, or a chain that is away: nothing is lost, and the next round tries again.
                _log.warning("tabs are looked after again later: %s", type(error).__name__)
            # Not wait_for: it may swallow the cancellation that comes with the event, and the task would never end.
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL):
                    await self.session.changed.wait()
            self.session.changed.clear()

    async def once(self) -> None:
        """Everything that is due now: pay, go on, summon, deliver, object, end what was left unanswered."""
        for record in self.session.books.all(self.session.domain):
            tab = f"tab {record.identifier.hex()[:10]}"
            # Before anything else of the tab: what was paid on chain is not to be refunded here.
            await self._apart(tab, self._acknowledge_claimed(record))
            await self._apart(tab, self._look_after_orders(record))
            await self._apart(tab, self._deliver(record))
            await self._apart(tab, self._watch_claim(record))
        await self._apart("who was silent", self._end_silence())
        self._forget()

    def _forget(self) -> None:
        """Let go of what is over: a gateway looks after tabs for months."""
        self._backoff.forget()
        block = self.session.block
        self._looked = {name: at for name, at in self._looked.items() if at == block}
        self._unknown_until = {
            order: last for order, last in self._unknown_until.items() if block <= last + FORGOTTEN_BLOCKS
        }

    async def _apart(self, what: str, work: Awaitable[None]) -> None:
        """One piece of work: what fails of it, foreseen or not, keeps no other order and no claim waiting."""
        try:
            await work
        except StoreUnusable:
            raise
        except Exception as error:  # noqa: BLE001 - a message may hold a prompt
            _log.warning("%s is looked after again later: %s", what, type(error).__name__)

    async def _end_silence(self) -> None:
        """Without a sentence in time whoever was silent would go on, and the deposit would lie there."""
        if self.summons is None:
            return
        for summons, record in self.summons.overdue(self.session.state, self.session.block).items():
            if not self._backoff.is_time(b"silence" + summons):
                continue
            # Once more after a while even if it was sent: the follower sees the sentence some blocks later.
            self._backoff.put_off(b"silence" + summons)
            try:
                line = await self.summons.end(summons, record)
            except ChainError as error:
                _log.info("a silent party is convicted later: %s", type(error).__name__)
                continue
            self.report(None, line)

    # ---- orders

    async def _look_after_orders(self, record: OwnTab) -> None:
        tab_context = self.session.tab_context_of(record.identifier)
        for entry in self.session.journal.due(record.identifier, self.session.block):
            await self._apart(f"order {entry.name[:12]}", self._look_after(tab_context, entry))
        for entry in self.session.journal.doubtable(record.identifier, MODE, self.session.block):
            await self._apart(f"order {entry.name[:12]}", self._by_self(entry))

    async def _look_after(self, tab_context: TabContext, entry: OrderRecord) -> None:
        owed = owed_now(self.session, entry)
        if owed is not None:
            pay(self.session, entry, owed)
            return
        await self._summon(entry)
        if is_undecided(entry) and self._backoff.is_time(entry.identifier):
            await self._find_out(tab_context, entry)
        if entry.phase is Phase.REJECTED and self._backoff.is_time(b"case" + entry.identifier):
            await self._to_court(entry)
        is_time = self._is_certain(entry) or self._backoff.is_time(entry.identifier)
        if self._goes_on(entry) and is_time and self.session.journal.take(entry.identifier):
            try:
                # Who had it until now may have ended it since it was read: begun again, its end would be forgotten.
                entry = self.session.journal.entry(entry.identifier)
                if self._goes_on(entry):
                    await self._go_on(tab_context, entry)
            finally:
                self.session.journal.release(entry.identifier)

    async def _find_out(self, tab_context: TabContext, entry: OrderRecord) -> None:
        """What became of an order that was taken over while it ran."""
        self._backoff.put_off(entry.identifier)
        try:
            await find_out(self.session, tab_context, entry)
        except StoreUnusable:
            raise
        except FAILURES as error:
            _log.info("an order that was taken over is looked after again later: %s", type(error).__name__)

    def _goes_on(self, entry: OrderRecord) -> bool:
        return entry.phase in RUNNING or self._check_may_come(entry)

    async def _summon(self, entry: OrderRecord) -> None:
        due = due_of(entry, self.session.parameters, self.session.state)
        if self.summons is None or due is None:
            return
        if not first_by_itself(entry, due) <= self.session.block <= due.last:
            return
        name = f"summons {due.kind} {due.segment}"
        if name in entry.evidence or not self._backoff.is_time(b"summons" + entry.identifier):
            return
        try:
            line = await self.summons.summon(entry, due)
        except ChainError as error:
            # A wallet without coins, or a chain that is away: other orders and claims are looked after all the same.
            self._backoff.put_off(b"summons" + entry.identifier)
            _log.info("an order is summoned later: %s", type(error).__name__)
            return
        self.session.journal.step(entry.identifier, more={name: line.encode()})
        self.report(entry, line)

    async def _by_self(self, entry: OrderRecord) -> None:
        """An answer that its user wants computed again, as long as it can still be doubted in court.

        The process that asked does it at once; this is for one that ended before.
        """
        own, left = own_verdict_of(entry), entry.created < self._since
        if own is None and left and self.session.own_model is not None and self.session.journal.take(entry.identifier):
            own = await check_by_self(self.session, entry)
            self.session.journal.release(entry.identifier)
            if own is not None:
                self.report(entry, f"own model: {own.words}")
        if own is not None and own.opinion is Opinion.REJECT and self._backoff.is_time(b"case" + entry.identifier):
            await self._to_court(entry)

    def _check_may_come(self, entry: OrderRecord) -> bool:
        """A check that was late may have been done since, and a summons may have brought it."""
        return entry.phase is Phase.REFUSED_CHECK

    async def _to_court(self, entry: OrderRecord) -> None:
        if self.session.opener is None or "court" in entry.evidence:
            return
        try:
            line = await go_to_court(self.session, entry)
        except StoreUnusable:
            raise
        except FAILURES as error:
            self._backoff.put_off(b"case" + entry.identifier)
            _log.info("an answer is brought to the court later: %s", type(error).__name__)
            return
        self.session.journal.step(entry.identifier, court=line.encode())
        self.report(entry, line)

    async def _go_on(self, tab_context: TabContext, entry: OrderRecord) -> None:
        """Take an order up where a process left it."""
        try:
            if entry.phase in {Phase.ORDERED, Phase.ADMITTED, Phase.ANSWERED}:
                await self._ask_again(tab_context, entry)
                entry = self.session.journal.entry(entry.identifier)
            if served_of(entry) is not None and (entry.phase in RUNNING or self._check_may_come(entry)):
                await _run_out(OrderSettlement(self.session, tab_context, entry).run())
        except StoreUnusable:
            raise
        except FAILURES as error:
            self._backoff.put_off(entry.identifier)
            _log.info("an order is looked after again later: %s", type(error).__name__)
        else:
            after = self.session.journal.entry(entry.identifier)
            if after.phase is entry.phase:
                self._backoff.put_off(entry.identifier)

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
        certain = self.session.block > self._unknown_until.get(entry.identifier, self.session.block)
        if certain:
            del self._unknown_until[entry.identifier]
        return certain

    def _never_arrived(self, entry: OrderRecord, submission: Submission) -> bool:
        """Give an order up that its scheduler does not know and may not admit any more; False: it may still arrive.

        A voucher that paid nothing for it before that would be refused, and so would each later one of its tab.
        """
        last = unknown_until(submission.order.message, self.session.parameters)
        if self.session.block > last:
            give_up(self.session, entry, f"never admitted: nobody may admit it after block {last}")
            return True
        self._unknown_until[entry.identifier] = last
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

    # ---- claims

    async def _acknowledge_claimed(self, record: OwnTab) -> None:
        count = acknowledge_claimed(self.session, record.identifier)
        if count:
            about = f"a claim on tab 0x{record.identifier.hex()[:10]} was paid on chain"
            what = f"{count} answers are" if count > 1 else "the answer is"
            self.report(None, f"{about}: {what} acknowledged, which costs nothing more")

    async def _watch_claim(self, record: OwnTab) -> None:
        """Object to a claim that shows more than is owed, and strike it where it was not shown."""
        name, standing = b"claim" + record.identifier, self.session.state.tabs.get(record.identifier)
        looked = self._looked.get(name) == self.session.block
        if self.objector is None or standing is None or standing.claim is None:
            return
        if looked or not self._backoff.is_time(name):
            return
        self._looked[name] = self.session.block
        try:
            lines = await self.objector.look(self.session, self.session.books.record(record.identifier))
        except StoreUnusable:
            raise
        except FAILURES as error:
            self._backoff.put_off(name)
            _log.info("a claim is looked at again later: %s", type(error).__name__)
            return
        self._backoff.succeeded(name)
        for line in lines:
            if line not in self._told:
                self._told[line] = None
                self.report(None, line)
        for line in list(self._told)[:-LINES_REMEMBERED]:
            del self._told[line]

    # ---- words

    async def _deliver(self, record: OwnTab) -> None:
        record, name = self.session.books.record(record.identifier), b"word" + record.identifier
        if record.delivered or record.voucher is None or not self._backoff.is_time(name):
            return
        tab_context = self.session.tab_context_of(record.identifier)
        try:
            calls = await self.session.calls(tab_context)
            await calls.acknowledge(Acknowledgement(record.tab, record.voucher))
        except FAILURES as error:
            self._backoff.put_off(name)
            if isinstance(error, SchedulerRefusal):
                tab_context.recovered, tab_context.offered = False, 0.0
            _log.info("a voucher is delivered later: %s", type(error).__name__)
            return
        self.session.books.delivered(record.identifier, record.voucher)
        self._backoff.succeeded(name)


async def _run_out(steps: AsyncGenerator[CourseStep, None]) -> None:
    async with aclosing(steps):
        async for _ in steps:
            continue


# ------------------------------------------------------------------------------------------------------- what is owed


def owed_now(session: PayerSession, entry: OrderRecord) -> int | None:
    """What may be acknowledged for an order now; None: nothing yet.

    Failed orders cost nothing, checked ones their fee at once, others once the lag is over, unless a case that runs
    permits to withhold them. A leaf that fell in court, or with a conviction of who served it, costs nothing.
    """
    if entry.phase is Phase.FAILED:
        return 0
    if fell(session.state, entry):
        return 0
    if entry.phase is Phase.RECOVERED:
        return _owed_recovered(session, entry)
    if entry.fee is None:
        return None
    if entry.phase is Phase.CHECKED:
        return entry.fee
    over = entry.due is not None and session.block >= entry.due
    paid_late = entry.phase in {Phase.UNDRAWN, Phase.UNCLEAR, Phase.REJECTED}
    return entry.fee if paid_late and over and not withheld(session, entry) else None


def withheld(session: PayerSession, entry: OrderRecord) -> bool:
    """Whether a case that runs permits to keep this leaf back; a rejection that nobody brought to court does not."""
    served = served_of(entry)
    if served is None:
        return False
    for segment, node in enumerate(served.admitted.nodes):
        for place in (segment, segment + messages.DOUBTS):
            record = session.state.cases.get(case_id(entry.identifier, place))
            live = record is not None and record.live
            if record is not None and live and life.may_withhold(record.state, entry.identifier, node, segment):
                return True
    return False


def _owed_recovered(session: PayerSession, entry: OrderRecord) -> int | None:
    """An order of before a backup: its request is lost, but what was signed shows what it costs."""
    shown = entry.read("recovered", OpenOrder)
    if shown is None or shown.draw is None or not shown.results:
        return None
    order, tab = shown.order.message, session.books.record(entry.tab).tab
    view = session.view(order, tab)
    results = checks.require_results(order, shown.results, shown.nodes, view)
    shown.draw.require(session.domain, tab.payee)
    if session.block < shown.draw.message.block_number + view.lag:
        return None
    return prices.fee(order, view.rules, len(results), results[-1])
