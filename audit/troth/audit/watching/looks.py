"""A watcher's looks: the chain as it is followed, the schedulers' logs as they are served, evidence as it is handed in.

A look runs the same checks as an audit. What was read of settled blocks and of log entries that hash to what was
posted is kept, so that a look costs what is new. What was shown is kept, too, through restarts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from troth.audit import running
from troth.audit.checks import CHAIN, logs
from troth.audit.errors import ChainMoved
from troth.audit.evidence.history import History, read_history
from troth.audit.evidence.source import Source
from troth.audit.evidence.transactions import Transaction
from troth.audit.report import AuditReport, CheckReport, Finding
from troth.audit.services import AuditedServices
from troth.audit.subject import AuditSubject
from troth.audit.watching import handed
from troth.audit.watching.findings import ShownFindings
from troth.chain.headers import RawHeader
from troth.chain.market_follower import MarketFollower
from troth.chain.store import WINDOW
from troth.protocol.logs import EventLog
from troth.protocol.market.log_data import data_hash
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Inclusion
from troth.protocol.types import Address, Hash32

Fetch = Callable[[History, Address, int], bytes]
"""Data of a scheduler's log entry; raises what ``running.from_scheduler`` does."""


class CachingSource(Source):
    """Headers and transactions of what was read before are not asked for again, until the chain moves."""

    headers: dict[int, RawHeader]
    transactions: dict[Hash32, Transaction]
    settled: int
    prover: tuple[EventLog, ...]
    """What the prover said in settled blocks."""
    heard: int
    """The last of those blocks."""

    @classmethod
    def of(cls, source: Source) -> CachingSource:
        """The same connection with a memory."""
        made = cls(source._market, source._rpc)
        made.headers, made.transactions, made.settled = {}, {}, -1
        made.prover, made.heard = (), -1
        return made

    async def header(self, number: int | None) -> RawHeader:
        """A header; one that may still be reorganised is asked for each time."""
        if number is not None and number in self.headers:
            return self.headers[number]
        found = await super().header(number)
        if found.number <= self.settled:
            self.headers[found.number] = found
        return found

    async def _transaction(self, wanted: Hash32) -> Transaction | None:
        if wanted not in self.transactions:
            found = await super()._transaction(wanted)
            if found is None:
                return None
            self.transactions[wanted] = found
        return self.transactions[wanted]

    async def told(self, prover: Address, first: int, last: int) -> tuple[EventLog, ...]:
        """The prover's logs; those of settled blocks are not asked for again."""
        found = (*self.prover, *await super().told(prover, max(first, self.heard + 1), last))
        self.heard = max(self.heard, min(self.settled, last))
        self.prover = tuple(log for log in found if log.meta.block <= self.heard)
        return found

    def forget(self) -> None:
        """The chain moved: nothing that was read counts."""
        self.prover, self.heard = (), -1
        self.headers.clear()
        self.transactions.clear()


@dataclass(frozen=True, slots=True)
class Look:
    """One look: the whole report, what is new in it, and what is no longer there."""

    report: AuditReport
    fresh: tuple[Finding, ...]
    gone: tuple[str, ...]


@dataclass(slots=True)
class Watcher:
    """Watches one deployment, and ``services`` beside it. ``folder`` keeps its state; ``evidence`` is where files are
    handed in."""

    source: CachingSource
    follower: MarketFollower
    folder: Path
    shown: ShownFindings
    evidence: Path | None = None
    promises: tuple[Signed[Inclusion], ...] = ()
    only: frozenset[str] = frozenset()
    fetch: Fetch | None = None
    services: AuditedServices | None = None
    _asked: bool = False
    _served: dict[tuple[Address, int], bytes] = field(default_factory=dict)

    async def look(self) -> Look:
        """One look at everything; raises what a broken chain raises, and ChainMoved where it moved meanwhile."""
        await self.follower.catch_up()
        block, state = self.follower.block, self.follower.state
        subject = await self.subject(block)
        reports = [await asyncio.to_thread(check.report, subject) for check in CHAIN if self._wants(check.number)]
        for scheduler in sorted(subject.history.state.logs):
            served = await asyncio.to_thread(self.served_by, subject.history, scheduler)
            found = await asyncio.to_thread(logs.examine, subject, served)
            reports += [one for one in found if self._wants(one.number)]
            # A deployment's logs grow for years: between two looks they are on disk alone.
            self.release()
        if self.evidence is not None and self._wants(handed.NUMBER):
            reports.append(await asyncio.to_thread(handed.examine, self.evidence, state, block))
        if self.services is not None:
            reports += [one for one in (await self.services.read(subject)).reports if self._wants(one.number)]
        report = self._report(subject, reports)
        fresh, gone = self.shown.compare(report.findings, block)
        return Look(report, fresh, gone)

    def shown_now(self, look: Look) -> None:
        """The look was printed: what it found is not shown again."""
        self.shown.note(look.report.findings, look.report.last_block)

    def _wants(self, number: str) -> bool:
        return not self.only or number in self.only

    async def subject(self, block: int) -> AuditSubject:
        """The record up to a block. The contracts' own words are asked for in the first look."""
        found = tuple(self.follower.logs())
        self.source.settled = block - WINDOW
        history = read_history(found, self.source.place)
        try:
            if history.state.deployed is not None:
                prover = history.state.deployed.parameters.prover
                found = await self.source.with_prover(found, prover, block)
            header = await self.source.header(block)
            evidence = await self.source.evidence(self.source.place.block, header, found, history, ask=not self._asked)
        except ChainMoved:
            self.source.forget()
            raise
        self._asked = True
        return AuditSubject(evidence, history)

    def served_by(
        self,
        history: History,
        scheduler: Address,
        only: Collection[int] | None = None,
        away: logs.MissingLogData | None = None,
    ) -> logs.ServedLogs:
        """A scheduler's data, of ``only`` these entries: what hashes to what was posted is kept on disk and not asked
        for again. ``away``: why the scheduler is not asked; one that does not answer is not asked for other entries.
        """
        data: dict[int, bytes] = {}
        refusals: dict[int, logs.MissingLogData] = {}
        for entry in history.state.logs.get(scheduler, ()):
            if only is not None and entry.number not in only:
                continue
            kept = self._kept(scheduler, entry.number, entry.data_hash)
            if kept is None and away is not None:
                refusals[entry.number] = away
                continue
            try:
                data[entry.number] = self._asked_for(history, scheduler, entry.number) if kept is None else kept
            except running.UNSERVED as error:
                refusals[entry.number] = refusal = running.refusal_of(error)
                away = None if refusal.reached else refusal
                continue
            if kept is None and data_hash(data[entry.number]) == entry.data_hash:
                self._keep(scheduler, entry.number, data[entry.number])
        own = tuple(one for one in self.promises if running.is_promise_of(one, scheduler, self.source.domain))
        return logs.ServedLogs(scheduler, data, refusals, own)

    def release(self) -> None:
        """Keep logs on disk alone: what is asked for again is read from there."""
        self._served.clear()

    def _asked_for(self, history: History, scheduler: Address, number: int) -> bytes:
        if self.fetch is not None:
            return self.fetch(history, scheduler, number)
        return running.from_scheduler(history, scheduler)(number)

    def _kept(self, scheduler: Address, number: int, expected: Hash32) -> bytes | None:
        known = self._served.get((scheduler, number))
        path = self.path(scheduler, number)
        data = path.read_bytes() if known is None and path.is_file() else known
        if data is None or data_hash(data) != expected:
            return None
        self._served[scheduler, number] = data
        return data

    def _keep(self, scheduler: Address, number: int, data: bytes) -> None:
        path = self.path(scheduler, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self._served[scheduler, number] = data

    def path(self, scheduler: Address, number: int) -> Path:
        """Where an entry's data is kept."""
        return self.folder / "logs" / scheduler.lower() / f"{number}.jsonl"

    def _report(self, subject: AuditSubject, reports: list[CheckReport]) -> AuditReport:
        merged: dict[str, CheckReport] = {}
        for one in reports:
            earlier = merged.get(one.number)
            results = one.results if earlier is None else (*earlier.results, *one.results)
            merged[one.number] = CheckReport(one.number, one.title, results)
        evidence = subject.evidence
        return AuditReport(
            chain_id=evidence.chain_id,
            contract=evidence.place.contracts.bank,
            first_block=evidence.first,
            last_block=evidence.last.number,
            last_block_hash=evidence.last.hash,
            tasks=tuple(sorted(subject.history.state.cases)),
            checks=tuple(merged.values()),
            not_checked=running.NOT_CHECKED,
            subject="case",
        )
