"""The process that reads: it follows the chain, prices gas, examines logs, runs the audit, and writes the index.

Three tasks side by side, each going on after any error: following is quick and runs at every block; gas is asked for a
bounded number of transactions at a time; audits run in a thread, one after the other, since they take longest.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from troth.audit import running
from troth.audit.checks import CHAIN, logs
from troth.audit.evidence.source import Source, each
from troth.audit.report import CheckReport, CheckResult, Finding, FindingKind
from troth.audit.services import AuditedServices
from troth.audit.subject import AuditSubject
from troth.audit.watching.findings import ShownFindings
from troth.audit.watching.looks import CachingSource, Watcher
from troth.chain import decoding
from troth.chain.duty import Duty
from troth.chain.errors import ChainError
from troth.chain.market import Market
from troth.chain.market import founding as found_of
from troth.chain.market_follower import MarketFollower
from troth.chain.rpc import Rpc
from troth.explorer.disputes import read_disputes
from troth.explorer.errors import ExplorerError
from troth.explorer.index import EntryName, ExplorerIndex
from troth.explorer.opening import Place
from troth.protocol.errors import ProtocolError, TrothError
from troth.protocol.market import log_data
from troth.protocol.types import Address, Hash32
from troth.transport.logs import configure

_log = logging.getLogger(__name__)

INDEX_FILE = "index.sqlite"
POLL_SECONDS = 1.0
GAS_AT_ONCE = 200
"""Transactions whose receipts are asked for in one go."""
ENTRIES_AT_ONCE = 50
"""Log entries examined between two audits of the chain, so that a long log does not keep the badge from moving."""
RESTART_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """What is read, and where the index lies; it crosses to another process.

    Args:
        created_by: the transaction that created the factory. It left no event, so nothing else names it.
    """

    rpc: str
    factory: Address
    bank: Address | None
    start: int
    home: Path
    interval: float = 15.0
    services: AuditedServices | None = None
    database: str = ""
    created_by: Hash32 | None = None

    @property
    def index(self) -> Place:
        """Where the index lies: the database's URL, or a file in the home folder."""
        return self.database or self.home / INDEX_FILE

    def reproduce(self, finding: Finding) -> str:
        """The command that shows a finding again."""
        return (self.services or AuditedServices(self.rpc)).again(finding, self.factory)


@dataclass(slots=True)
class Reader:
    """One deployment's reader; make it and its connections with ``read``."""

    settings: ReaderSettings
    index: ExplorerIndex
    watcher: Watcher
    rpc: Rpc
    founding: list[tuple[Hash32, int]]
    """Transactions that made the deployment, with their blocks. Most of them were before it stood, where following
    begins."""

    async def follow(self) -> None:
        """Take over the chain's newest blocks."""
        follower = self.watcher.follower
        await follower.catch_up()
        self.index.follow(follower.block, follower.state, follower.logs)

    async def price(self) -> None:
        """Gas and times of transactions that lack them."""
        await self._see_the_factory_created()
        for name, block in self.founding:
            if not self.index.has_transaction(name):
                self.index.created(name, block)
        open_ = self.index.unpriced(GAS_AT_ONCE)
        if not open_:
            return
        receipts = await each([name for name, _ in open_], self._receipt)
        blocks = sorted({block for _, block in open_})
        times = dict(zip(blocks, await each(blocks, self._time), strict=True))
        known = {name: paid for (name, _), paid in zip(open_, receipts, strict=True) if paid is not None}
        self.index.priced(known, {block: when for block, when in times.items() if when})

    async def _see_the_factory_created(self) -> None:
        """Have the factory's creation among the transactions; a hash that created something else is left out."""
        name = self.settings.created_by
        if name is None or self.index.has_transaction(name):
            return
        found: Any = await self.rpc.request("eth_getTransactionReceipt", decoding.hexadecimal(name))
        if isinstance(found, dict) and str(found.get("contractAddress")).lower() == self.settings.factory.lower():
            self.index.created(name, decoding.quantity(found.get("blockNumber")))

    async def _receipt(self, name: Hash32) -> tuple[int, int] | None:
        found: Any = await self.rpc.request("eth_getTransactionReceipt", decoding.hexadecimal(name))
        if not isinstance(found, dict):
            return None
        return decoding.quantity(found.get("gasUsed")), decoding.quantity(found.get("effectiveGasPrice", "0x0"))

    async def _time(self, block: int) -> int:
        found: Any = await self.rpc.request("eth_getBlockByNumber", hex(block), False)
        return decoding.quantity(found.get("timestamp")) if isinstance(found, dict) else 0

    async def audit(self) -> None:
        """The chain's checks over all events, then those of log entries that are new or were not in order."""
        block = self.watcher.follower.block
        subject = await self.watcher.subject(block)
        reports = await asyncio.to_thread(lambda: [check.report(subject) for check in CHAIN])
        self.index.audited(block, reports, self.settings.reproduce)
        self.index.disputed(await asyncio.to_thread(read_disputes, subject))
        if self.settings.services is not None:
            self.index.served(await self.settings.services.read(subject), self.settings.reproduce)
        # Who is away is not asked for every entry in turn.
        away: dict[Address, logs.MissingLogData] = {}
        for entry in self.index.waiting(ENTRIES_AT_ONCE):
            lines, found, refusal = await asyncio.to_thread(self._examine, subject, entry, away.get(entry.scheduler))
            # In the loop's thread, as every write: two threads would write into each other's transactions.
            self.index.examined(entry, lines, found, self.settings.reproduce)
            self.watcher.release()
            if refusal is not None and not refusal.reached:
                away[entry.scheduler] = refusal

    def _examine(
        self, subject: AuditSubject, entry: EntryName, away: logs.MissingLogData | None
    ) -> tuple[tuple[log_data.LogLine, ...], tuple[CheckReport, ...], logs.MissingLogData | None]:
        """An entry's lines, what the audit says of them, and why there are none; ``away``: its scheduler is not asked,
        for this reason."""
        served = self.watcher.served_by(subject.history, entry.scheduler, {entry.number}, away)
        try:
            reports = logs.examine(subject, served, {entry.number})
        except (ProtocolError, ValueError, LookupError, ArithmeticError, TypeError) as error:
            # As an audit's other checks: what nobody foresaw in a stranger's data keeps no other entry waiting.
            what = f"Entry {entry.number} could not be examined: {type(error).__name__}: {error}"
            finding = Finding("M13", FindingKind.INCOMPLETE, what, party=entry.scheduler, role="scheduler")
            return (), (CheckReport("M13", logs.TITLES["M13"], (CheckResult(None, (finding,)),)),), None
        data = served.data.get(entry.number, b"")
        lines: tuple[log_data.LogLine, ...] = ()
        if log_data.written(log_data.data_hash(data)) == entry.data_hash:
            with suppress(ProtocolError):
                lines = log_data.decode_data(data)
        return lines, reports, served.refusals.get(entry.number)


async def read(settings: ReaderSettings, once: bool = False) -> None:
    """Read until cancelled; ``once``: until the index holds the newest block, all logs and one audit."""
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = await running.find_place(settings.rpc, settings.factory, settings.bank, settings.start)
    rpc = Rpc(settings.rpc)
    shown = ShownFindings(settings.home / "findings.sqlite")
    try:
        async with (
            await Source.connect(settings.rpc, place) as source,
            await Market.connect(settings.rpc, place) as market,
            MarketFollower(market, settings.home / "chain.sqlite") as follower,
        ):
            index = ExplorerIndex.open(settings.index, market.chain.chain_id, place)
            try:
                watcher = Watcher(CachingSource.of(source), follower, settings.home, shown)
                founding = await found_of(settings.rpc, place, settings.start)
                reader = Reader(settings, index, watcher, rpc, founding)
                await (_once(reader) if once else _for_ever(reader))
            finally:
                index.close()
    except ChainError as error:
        raise ExplorerError(error.what, error.value, error.remedy) from error
    finally:
        shown.close()
        await rpc.close()


async def _once(reader: Reader) -> None:
    await reader.follow()
    asked: list[tuple[Hash32, int]] = []
    # Until none is left, or the same ones are: the chain node does not know these.
    while (unpriced := reader.index.unpriced(GAS_AT_ONCE)) and unpriced != asked:
        asked = unpriced
        await reader.price()
    await reader.audit()
    while any(entry.state == "waiting" for entry in reader.index.waiting(1)):
        await reader.audit()


async def _for_ever(reader: Reader) -> None:
    await reader.follow()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_again("following the chain", reader.follow, POLL_SECONDS, reader.index))
        tasks.create_task(_again("reading of gas", reader.price, POLL_SECONDS, reader.index))
        tasks.create_task(_again("the audit", reader.audit, reader.settings.interval, reader.index))


async def _again(what: str, work: Callable[[], Awaitable[None]], pause: float, index: ExplorerIndex) -> None:
    """Work again and again; what fails is shown on every page."""

    async def turn() -> None:
        try:
            await work()
        except Exception as error:
            with suppress(ExplorerError):
                index.troubled(str(error))
            raise

    await Duty(what, turn, every=pause, longest=pause).run()


# ---------------------------------------------------------------------------------------------------- as a process


class ReaderProcess:
    """The reader in a process of its own, so that no audit slows a page; started again when it dies."""

    def __init__(self, settings: ReaderSettings) -> None:
        self._settings = settings
        self._stopping, self._starting = threading.Event(), threading.Lock()
        self._process: BaseProcess | None = None
        self._thread = threading.Thread(target=self._keep, name="reader's keeper", daemon=True)

    def start(self) -> None:
        """Start it, and keep it running."""
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        # One that is just being started is waited for: a process that outlives this call would hold up the exit.
        with self._starting:
            if self._process is not None and self._process.is_alive():
                self._process.terminate()
        self._thread.join(RESTART_SECONDS)

    def _keep(self) -> None:
        while not self._stopping.is_set():
            with self._starting:
                if self._stopping.is_set():
                    return
                self._process = multiprocessing.get_context("spawn").Process(target=_main, args=(self._settings,))
                self._process.start()
            self._process.join()
            if not self._stopping.is_set():
                _log.warning("the reader ended (%s) and is started again", self._process.exitcode)
            self._stopping.wait(RESTART_SECONDS)


def _main(settings: ReaderSettings) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    configure("WARNING")
    try:
        asyncio.run(read(settings))
    except TrothError as error:
        _log.warning("%s", error)


def _end_with_parent() -> None:
    """A parent that was killed stops nothing: without this, its reader would keep the chain's file for itself."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
