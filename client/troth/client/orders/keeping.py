"""What goes on in the background: orders that a process left behind, payments that are due, words to deliver.

It decides from what is written down and from blocks on chain alone, so it survives restarts and may run in several
processes: a step that another one has taken is not there to be taken again. Nothing here waits for anybody: what is
asked of a scheduler or of the chain is an errand, or whoever is slow would hold up a summons or an objection until its
time is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType

from troth.chain.errors import ChainError
from troth.client.orders.calls import SchedulerRefusal
from troth.client.orders.errands import Backoff, Errands
from troth.client.orders.journal import OrderRecord
from troth.client.orders.objecting import Objector
from troth.client.orders.own_check import MODE
from troth.client.orders.paying import owed_now, pay
from troth.client.orders.resuming import Report, Resumer
from troth.client.orders.session import FAILURES, PayerSession
from troth.client.orders.summoning import AutomaticSummons, SummonsDue, due_of, first_by_itself
from troth.client.tabs.books import OwnTab
from troth.client.tabs.claims_paid import acknowledge_claimed
from troth.client.tabs.errors import StoreUnusable
from troth.protocol.market.bodies import Acknowledgement
from troth.protocol.market.state import SummonsRecord
from troth.protocol.types import Hash32

INTERVAL = 1.0
SUMMONSES_TOGETHER = 16
"""That are on their way to the chain at once: its nodes keep so many transactions of one account for certain."""
LINES_REMEMBERED = 1_000
"""Lines about claims that are not said twice."""
_log = logging.getLogger(__name__)


def unheard(_entry: OrderRecord | None, _line: str) -> None:
    """Nobody listens."""


@dataclass
class OrderKeeper:
    """Use it with ``async with``; ``once`` does everything that is due now. ``report`` hears what it did by itself."""

    session: PayerSession
    summons: AutomaticSummons | None = None
    report: Report = unheard
    objector: Objector | None = None
    _task: asyncio.Task[None] | None = None
    _errands: Errands = field(default_factory=Errands)
    _backoff: Backoff = field(default_factory=Backoff)
    _resumer: Resumer = field(init=False)
    _told: dict[str, None] = field(default_factory=dict)
    _looked: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._resumer = Resumer(self.session, self._errands, self.report, self._backoff)

    async def __aenter__(self) -> OrderKeeper:
        self._task = asyncio.create_task(self._run(), name="keeper of tabs")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Break everything off that goes on in the background."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._errands.close()

    async def _run(self) -> None:
        while True:
            try:
                self._round()
            except Exception as error:  # noqa: BLE001 - claims are objected to whatever failed; a message may hold a prompt
                # A full disk: nothing is lost, and the next round tries again.
                _log.warning("tabs are looked after again later: %s", type(error).__name__)
            # Not wait_for: it may swallow the cancellation that comes with the event, and the task would never end.
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL):
                    await self.session.changed.wait()
            self.session.changed.clear()

    async def once(self) -> None:
        """Everything that is due now: pay, go on, summon, deliver, object, end what was left unanswered.

        Raises:
            StoreUnusable: what was done could not be written down.
        """
        self._round()
        await self._errands.ended()
        # What the errands paid is delivered with it.
        for record in self.session.books.all(self.session.domain):
            self._apart(f"tab {record.identifier.hex()[:10]}", partial(self._deliver, record))
        await self._errands.ended()

    def _round(self) -> None:
        """Do what needs nobody else, and begin the rest."""
        for record in self.session.books.all(self.session.domain):
            tab = f"tab {record.identifier.hex()[:10]}"
            # Before anything else of the tab: what was paid on chain is not to be refunded here.
            for step in (self._acknowledge_claimed, self._look_after_orders, self._deliver, self._watch_claim):
                self._apart(tab, partial(step, record))
        self._apart("who was silent", self._end_silence)
        self._forget()

    def _apart(self, what: str, step: Callable[[], None]) -> None:
        """One step: what fails of it, foreseen or not, keeps no other order and no claim waiting."""
        try:
            step()
        except StoreUnusable:
            raise
        except Exception as error:  # noqa: BLE001 - a message may hold a prompt
            _log.warning("%s is looked after again later: %s", what, type(error).__name__)

    def _forget(self) -> None:
        """Let go of what is over: a gateway looks after tabs for months."""
        self._resumer.forget()
        block = self.session.block
        self._looked = {name: at for name, at in self._looked.items() if at == block}

    # ---- orders

    def _look_after_orders(self, record: OwnTab) -> None:
        for entry in self.session.journal.due(record.identifier, self.session.block):
            self._apart(f"order {entry.name[:12]}", partial(self._look_after, record, entry))
        for entry in self.session.journal.doubtable(record.identifier, MODE, self.session.block):
            self._apart(f"order {entry.name[:12]}", partial(self._resumer.compute_again, entry))

    def _look_after(self, record: OwnTab, entry: OrderRecord) -> None:
        owed = owed_now(self.session, entry)
        if owed is not None:
            pay(self.session, entry, owed)
            return
        self._summon(entry)
        self._resumer.resume(record, entry)

    # ---- summonses

    def _summon(self, entry: OrderRecord) -> None:
        due = due_of(entry, self.session.parameters, self.session.state)
        if self.summons is None or due is None:
            return
        if not first_by_itself(entry, due) <= self.session.block <= due.last:
            return
        name = b"summons" + entry.identifier
        if _summoned(due) in entry.evidence or not self._backoff.is_time(name):
            return
        if self._errands.count(b"summons") >= SUMMONSES_TOGETHER:
            return
        self._errands.begin(name, f"order {entry.name[:12]}", partial(self._summon_now, self.summons, entry, due))

    async def _summon_now(self, summons: AutomaticSummons, entry: OrderRecord, due: SummonsDue) -> None:
        try:
            line = await summons.summon(entry, due)
        except ChainError as error:
            # A wallet without coins, or a chain that is away.
            self._backoff.put_off(b"summons" + entry.identifier)
            _log.info("an order is summoned later: %s", type(error).__name__)
            return
        self.session.journal.step(entry.identifier, more={_summoned(due): line.encode()})
        self.report(entry, line)

    def _end_silence(self) -> None:
        """Without a sentence in time whoever was silent would go on, and the deposit would lie there."""
        if self.summons is None:
            return
        for summons, record in self.summons.overdue(self.session.state, self.session.block).items():
            name = b"silence" + summons
            if self._backoff.is_time(name) and not self._errands.runs(name):
                # Once more after a while even if it was sent: the follower sees the sentence some blocks later.
                self._backoff.put_off(name)
                self._errands.begin(name, "who was silent", partial(self._convict, self.summons, summons, record))

    async def _convict(self, wallet: AutomaticSummons, summons: Hash32, record: SummonsRecord) -> None:
        try:
            line = await wallet.end(summons, record)
        except ChainError as error:
            _log.info("a silent party is convicted later: %s", type(error).__name__)
            return
        self.report(None, line)

    # ---- claims

    def _acknowledge_claimed(self, record: OwnTab) -> None:
        count = acknowledge_claimed(self.session, record.identifier)
        if count:
            about = f"a claim on tab 0x{record.identifier.hex()[:10]} was paid on chain"
            what = f"{count} answers are" if count > 1 else "the answer is"
            self.report(None, f"{about}: {what} acknowledged, which costs nothing more")

    def _watch_claim(self, record: OwnTab) -> None:
        """Object to a claim that shows more than is owed, and strike it where it was not shown."""
        name, standing = b"claim" + record.identifier, self.session.state.tabs.get(record.identifier)
        looked = self._looked.get(name) == self.session.block
        if self.objector is None or standing is None or standing.claim is None:
            return
        if looked or not self._backoff.is_time(name) or self._errands.runs(name):
            return
        self._looked[name] = self.session.block
        about = f"the claim on tab {record.identifier.hex()[:10]}"
        self._errands.begin(name, about, partial(self._object, self.objector, record.identifier))

    async def _object(self, objector: Objector, tab: Hash32) -> None:
        name = b"claim" + tab
        try:
            lines = await objector.look(self.session, self.session.books.record(tab))
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

    def _deliver(self, record: OwnTab) -> None:
        record, name = self.session.books.record(record.identifier), b"word" + record.identifier
        if not record.delivered and record.voucher is not None and self._backoff.is_time(name):
            about = f"the word on tab {record.identifier.hex()[:10]}"
            self._errands.begin(name, about, partial(self._say, record.identifier))

    async def _say(self, tab: Hash32) -> None:
        name, tab_context = b"word" + tab, self.session.tab_context_of(tab)
        try:
            calls = await self.session.calls(tab_context)
            record = self.session.books.record(tab)
            if record.voucher is None:
                return
            await calls.acknowledge(Acknowledgement(record.tab, record.voucher))
        except FAILURES as error:
            self._backoff.put_off(name)
            if isinstance(error, SchedulerRefusal):
                tab_context.recovered, tab_context.offered = False, 0.0
            _log.info("a voucher is delivered later: %s", type(error).__name__)
            return
        self.session.books.delivered(tab, record.voucher)
        self._backoff.succeeded(name)


def _summoned(due: SummonsDue) -> str:
    """Under which name a summons is written down with its order."""
    return f"summons {due.kind} {due.segment}"
