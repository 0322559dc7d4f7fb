"""The index: a database (an SQLite file, or Postgres), which one process writes and any number read.

Every update is one transaction, so that kill -9 leaves it as it was before or after. What a block said carries
the block's number, and goes when a reorganisation takes the block; what is true now (parties, groups, classes) is
written anew. So an index that grew block by block, through any reorganisation, holds what one made at once would.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from troth.audit.report import CheckReport, Reproduce
from troth.audit.services import ReadServices
from troth.chain.market import DeploymentPlace
from troth.chain.store import WINDOW
from troth.explorer import disputes, reputation, rows, services
from troth.explorer.database import Database
from troth.explorer.errors import IndexUnusable
from troth.explorer.opening import Place, open_to_write
from troth.explorer.rows import GroupNames, hexadecimal
from troth.protocol.logs import EventLog
from troth.protocol.market.events import parse_log
from troth.protocol.market.log_data import LogLine
from troth.protocol.market.state import State
from troth.protocol.types import Address, Hash32

FORMAT = 3
ASK_AGAIN_SECONDS, EXAMINE_AGAIN_SECONDS = 60.0, 3_600.0
"""After which data that was not served is asked for again, and data with findings is examined again."""
CHAIN = "chain"
"""The source of findings that are not about one log entry."""
SERVICES = "services"
"""The source of findings about what stands beside the market."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS progress (
    "only" INTEGER PRIMARY KEY CHECK ("only" = 0), chain_id INTEGER NOT NULL, factory TEXT NOT NULL, bank TEXT NOT NULL,
    start INTEGER NOT NULL, asset TEXT NOT NULL DEFAULT '',
    lens TEXT NOT NULL, registry TEXT NOT NULL,
    block INTEGER NOT NULL DEFAULT -1, seen REAL NOT NULL DEFAULT 0,
    audited INTEGER NOT NULL DEFAULT -1, audited_at REAL NOT NULL DEFAULT 0, trouble TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS blocks (
    number INTEGER PRIMARY KEY, hash TEXT NOT NULL, logs INTEGER NOT NULL, time INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS transactions (
    hash TEXT PRIMARY KEY, block INTEGER NOT NULL, kind TEXT NOT NULL, used INTEGER, price INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS transactions_block ON transactions (block);
CREATE INDEX IF NOT EXISTS transactions_open ON transactions (block) WHERE used IS NULL;
CREATE TABLE IF NOT EXISTS parties (
    operator TEXT PRIMARY KEY, role TEXT NOT NULL, owner TEXT NOT NULL, endpoint TEXT NOT NULL, class TEXT NOT NULL,
    first INTEGER, "end" INTEGER, registered INTEGER NOT NULL, exit_block INTEGER NOT NULL, stake TEXT NOT NULL,
    locked TEXT NOT NULL, seats INTEGER NOT NULL, suspended INTEGER NOT NULL, convictions INTEGER NOT NULL,
    tabs INTEGER NOT NULL, earned TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS parties_role ON parties (role, stake);
CREATE TABLE IF NOT EXISTS members (
    class TEXT NOT NULL, first INTEGER NOT NULL, "end" INTEGER NOT NULL, operator TEXT NOT NULL, seats INTEGER NOT NULL,
    prompt INTEGER NOT NULL, cached INTEGER NOT NULL, written INTEGER NOT NULL,
    PRIMARY KEY (class, first, "end", operator)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS classes (
    class TEXT PRIMARY KEY, name TEXT NOT NULL, model TEXT NOT NULL, architecture TEXT NOT NULL,
    layers INTEGER NOT NULL, exact INTEGER NOT NULL, verifiers INTEGER NOT NULL, reviewers INTEGER NOT NULL,
    check_rate INTEGER NOT NULL, penalty TEXT NOT NULL, seat TEXT NOT NULL, check_price TEXT NOT NULL,
    fee_cap TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS asks (
    block INTEGER NOT NULL, log_index INTEGER NOT NULL, class TEXT NOT NULL, first INTEGER NOT NULL,
    "end" INTEGER NOT NULL, operator TEXT NOT NULL, prompt INTEGER NOT NULL, cached INTEGER NOT NULL,
    written INTEGER NOT NULL, PRIMARY KEY (block, log_index)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cases (
    case_id TEXT PRIMARY KEY, order_id TEXT NOT NULL, segment INTEGER NOT NULL, node TEXT NOT NULL,
    scheduler TEXT NOT NULL, kind TEXT NOT NULL, phase TEXT NOT NULL, round INTEGER NOT NULL, outcome TEXT NOT NULL,
    opened INTEGER NOT NULL, last INTEGER NOT NULL, opener TEXT NOT NULL, bond TEXT NOT NULL, fee TEXT NOT NULL,
    class TEXT NOT NULL, reviewers INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS cases_opened ON cases (opened);
CREATE INDEX IF NOT EXISTS cases_node ON cases (node);
CREATE INDEX IF NOT EXISTS cases_order ON cases (order_id);
CREATE TABLE IF NOT EXISTS case_events (
    case_id TEXT NOT NULL, block INTEGER NOT NULL, log_index INTEGER NOT NULL, number INTEGER NOT NULL,
    "transaction" TEXT NOT NULL, lane TEXT NOT NULL, words TEXT NOT NULL, amount TEXT NOT NULL,
    PRIMARY KEY (case_id, block, log_index, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS slashes (
    block INTEGER NOT NULL, log_index INTEGER NOT NULL, "transaction" TEXT NOT NULL, operator TEXT NOT NULL,
    role TEXT NOT NULL, reason TEXT NOT NULL, evidence TEXT NOT NULL, subject TEXT NOT NULL, taken TEXT NOT NULL,
    burnt TEXT NOT NULL, void_from INTEGER NOT NULL, void_until INTEGER NOT NULL, PRIMARY KEY (block, log_index)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS slashes_operator ON slashes (operator);
CREATE TABLE IF NOT EXISTS entries (
    scheduler TEXT NOT NULL, number INTEGER NOT NULL, block INTEGER NOT NULL, "transaction" TEXT NOT NULL,
    root TEXT NOT NULL, data_hash TEXT NOT NULL, orders INTEGER NOT NULL, positions INTEGER NOT NULL,
    drawn INTEGER NOT NULL, checked INTEGER NOT NULL, rejected INTEGER NOT NULL, unrevealed INTEGER NOT NULL,
    fees TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'waiting', examined REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (scheduler, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_block ON entries (block);
CREATE TABLE IF NOT EXISTS tasks (
    bucket INTEGER NOT NULL, order_id TEXT NOT NULL, scheduler TEXT NOT NULL, number INTEGER NOT NULL,
    class TEXT NOT NULL, positions INTEGER NOT NULL, check_rate INTEGER NOT NULL, segments INTEGER NOT NULL,
    revealed INTEGER NOT NULL, drawn INTEGER NOT NULL, checked INTEGER NOT NULL, rejected INTEGER NOT NULL,
    wrong INTEGER NOT NULL, PRIMARY KEY (bucket, order_id, scheduler, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tasks_order ON tasks (order_id);
CREATE INDEX IF NOT EXISTS tasks_entry ON tasks (scheduler, number);
CREATE INDEX IF NOT EXISTS tasks_scheduler ON tasks (scheduler, bucket, order_id, number);
CREATE INDEX IF NOT EXISTS tasks_drawn ON tasks (bucket, order_id) WHERE drawn > 0;
CREATE INDEX IF NOT EXISTS tasks_rejected ON tasks (bucket, order_id) WHERE rejected > 0;
CREATE INDEX IF NOT EXISTS tasks_unrevealed ON tasks (bucket, order_id) WHERE revealed = 0;
CREATE INDEX IF NOT EXISTS tasks_wrong ON tasks (bucket, order_id) WHERE wrong > 0;
CREATE TABLE IF NOT EXISTS work (
    operator TEXT NOT NULL, bucket INTEGER NOT NULL, order_id TEXT NOT NULL, scheduler TEXT NOT NULL,
    number INTEGER NOT NULL, part TEXT NOT NULL, segment INTEGER NOT NULL, opinion TEXT NOT NULL,
    PRIMARY KEY (operator, bucket, order_id, part, segment, scheduler, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS work_entry ON work (scheduler, number);
CREATE TABLE IF NOT EXISTS tallies (
    operator TEXT NOT NULL, scheduler TEXT NOT NULL, number INTEGER NOT NULL, part TEXT NOT NULL,
    opinion TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (operator, part, opinion, scheduler, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tallies_entry ON tallies (scheduler, number);
CREATE TABLE IF NOT EXISTS results (
    source TEXT NOT NULL, "check" TEXT NOT NULL, title TEXT NOT NULL, ok INTEGER NOT NULL, violations INTEGER NOT NULL,
    inconclusive INTEGER NOT NULL, PRIMARY KEY (source, "check")
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS findings (
    source TEXT NOT NULL, place INTEGER NOT NULL, "check" TEXT NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL,
    order_id TEXT NOT NULL, party TEXT NOT NULL, role TEXT NOT NULL, block INTEGER NOT NULL,
    action TEXT NOT NULL, reproduce TEXT NOT NULL, PRIMARY KEY (source, place)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS findings_order ON findings (order_id);
"""

_BY_BLOCK = ("blocks", "transactions", "asks", "slashes", "case_events", "entries")
"""Tables whose rows are of one block each."""
_FINDINGS_KEPT = 500
"""Findings of one source that are kept; a broken log would have one a line, and the tallies count them all."""
_TEXT = 400
"""Characters of a finding's message: most of it is others' words."""
LogsAfter = Callable[[int], Sequence[EventLog]]
"""The chain's logs in blocks above a number, in the order of the chain."""


@dataclass(frozen=True, slots=True)
class EntryName:
    """A log entry that is to be examined, and the hash that its data must have."""

    scheduler: Address
    number: int
    data_hash: str
    state: str

    @property
    def source(self) -> str:
        """What its findings are filed under."""
        return f"{self.scheduler}/{self.number}"


@dataclass(slots=True)
class ExplorerIndex:
    """The writer's side. Make it with ``open``; one process writes."""

    database: Database
    place: DeploymentPlace
    names: GroupNames = field(default_factory=GroupNames)

    @classmethod
    def open(cls, at: Place, chain_id: int, place: DeploymentPlace) -> ExplorerIndex:
        """Open or make the index; IndexUnusable if it is another deployment's, or another version's."""
        schemas = (SCHEMA, services.SCHEMA, disputes.SCHEMA, reputation.SCHEMA)
        database = open_to_write(at, FORMAT, "".join(schemas))
        named = (chain_id, str(place.factory), str(place.contracts.bank))
        database.execute(
            'INSERT INTO progress ("only", chain_id, factory, bank, start, lens, registry) '
            "VALUES (0, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (*named, place.block, place.contracts.lens, place.contracts.registry),
        )
        found = database.execute("SELECT chain_id, factory, bank FROM progress").fetchone()
        if found != named:
            database.close()
            raise IndexUnusable("The index is of another deployment", database.where, "Name another --home.")
        return cls(database, place)

    def close(self) -> None:
        """End the connection."""
        self.database.close()

    def writing(self) -> AbstractContextManager[None]:
        """One transaction: all of it, or nothing."""
        return self.database.writing()

    # ---- the chain

    def follow(self, block: int, state: State, logs_after: LogsAfter) -> None:
        """Take over what the chain says up to ``block``, where it folds to ``state``."""
        agreed = self._agreed(logs_after)
        fresh = logs_after(agreed)
        (indexed,) = self.database.execute("SELECT block FROM progress").fetchone()
        with self.writing():
            if agreed < indexed:
                self._rewind(agreed)
            if fresh or agreed < indexed or indexed < 0:
                self._take(fresh, state)
            self.database.execute("UPDATE progress SET block=?, seen=?, trouble=''", (block, time.time()))

    def _agreed(self, logs_after: LogsAfter) -> int:
        """The last block up to which this index and the followed chain say the same; -1 if there is none.

        A block's hash names everything before it, so the newest block in which both saw something decides; logs are
        counted, too, since a chain node may have left some out.
        """
        (indexed,) = self.database.execute("SELECT block FROM progress").fetchone()
        (newest,) = self.database.execute("SELECT coalesce(max(number), -1) FROM blocks").fetchone()
        since = max(-1, min(indexed - 2 * WINDOW, newest - 1))
        seen = self.database.execute("SELECT number, hash, logs FROM blocks WHERE number > ?", (since,))
        ours = {number: (name, count) for number, name, count in seen}
        theirs: dict[int, tuple[str, int]] = {}
        for log in logs_after(since):
            if log.meta.block <= indexed:
                count = theirs.get(log.meta.block, ("", 0))[1]
                theirs[log.meta.block] = (hexadecimal(log.meta.block_hash), count + 1)
        differing = [one for one in sorted(ours.keys() | theirs.keys()) if ours.get(one) != theirs.get(one)]
        if not differing:
            return int(indexed)
        first = differing[0]
        # Nothing below it is known to be the same: what was forgotten may go deeper than was looked.
        return first - 1 if any(number < first for number in ours) else -1

    def _rewind(self, block: int) -> None:
        gone = self.database.execute("SELECT scheduler, number FROM entries WHERE block > ?", (block,)).fetchall()
        for scheduler, number in gone:
            self._forget_entry(scheduler, number)
        cases = self.database.execute("SELECT DISTINCT case_id FROM case_events WHERE block > ?", (block,)).fetchall()
        self.database.executemany("DELETE FROM cases WHERE case_id=?", cases)
        for table in _BY_BLOCK:
            column = "number" if table == "blocks" else "block"
            self.database.execute(f"DELETE FROM {table} WHERE {column} > ?", (block,))  # noqa: S608 -- own names
        # What the audit said may be about blocks that are gone: it looks again.
        self.database.execute("UPDATE progress SET audited=? WHERE audited > ?", (block, block))

    def _forget_entry(self, scheduler: str, number: int) -> None:
        for table in ("tasks", "work", "tallies"):
            self.database.execute(
                f"DELETE FROM {table} WHERE scheduler=? AND number=?",  # noqa: S608 -- own names
                (scheduler, number),
            )
        self._forget_source(f"{scheduler}/{number}")

    def _forget_source(self, source: str) -> None:
        self.database.execute("DELETE FROM results WHERE source=?", (source,))
        self.database.execute("DELETE FROM findings WHERE source=?", (source,))

    def _take(self, fresh: Sequence[EventLog], state: State) -> None:
        contracts, factory = self.place.contracts, self.place.factory
        events = [parse_log(log, contracts, factory) for log in fresh]
        counted = Counter((log.meta.block, hexadecimal(log.meta.block_hash)) for log in fresh)
        self.insert("blocks", ((*name, count, 0) for name, count in counted.items()))
        self.insert("transactions", ((*row, None, None) for row in rows.transaction_rows(events)))
        self.insert("asks", rows.ask_rows(events, state))
        self.insert("slashes", rows.slash_rows(events, state))
        self.insert("entries", ((*row, "waiting", 0) for row in rows.entry_rows(events)))
        told = rows.case_event_rows(events, state)
        self.insert("case_events", told)
        self._cases(state, {row[0] for row in told})
        members = rows.member_rows(state, self.names)
        for table, made in (
            ("members", members),
            ("parties", rows.party_rows(state, members)),
            ("classes", rows.class_rows(state)),
        ):
            self.database.execute(f"DELETE FROM {table}")  # noqa: S608 -- own names
            self.insert(table, made)
        if state.deployed is not None:
            self.database.execute("UPDATE progress SET asset=?", (state.deployed.parameters.asset,))

    def _cases(self, state: State, touched: Collection[str]) -> None:
        """Cases that were touched, and those that a rewind took and that still stand."""
        kept = {name for (name,) in self.database.execute("SELECT case_id FROM cases")}
        wanted = [one for one in state.cases if (name := hexadecimal(one)) in touched or name not in kept]
        self.insert("cases", rows.case_rows(state, wanted))

    def insert(self, table: str, made: Iterable[rows.Row]) -> None:
        """Rows of a table, in place of those with the same key."""
        if listed := list(made):
            self.database.insert(table, listed)

    # ---- logs and findings

    def waiting(self, most: int = 1_000) -> list[EntryName]:
        """Entries that were not examined yet, then those that were not served or had findings, and rested since.

        Later events may answer a finding. Who was looked at longest ago comes first, so that no scheduler's broken or
        huge log keeps others waiting.
        """
        now = time.time()
        found = self.database.execute(
            "SELECT scheduler, number, data_hash, state FROM entries WHERE state = 'waiting' "
            "OR (state = 'refused' AND examined < ?) OR (state = 'wrong' AND examined < ?) "
            "ORDER BY examined, block, scheduler, number LIMIT ?",
            (now - ASK_AGAIN_SECONDS, now - EXAMINE_AGAIN_SECONDS, most),
        )
        return [EntryName(Address(scheduler), *rest) for scheduler, *rest in found]

    def examined(
        self, entry: EntryName, lines: Sequence[LogLine], reports: Sequence[CheckReport], reproduce: Reproduce
    ) -> None:
        """What was found in an entry's data; without lines it was not served, or cannot be read."""
        wrong = Counter(rows.order_of(one.task_id) for report in reports for one in report_findings(report))
        state = "clean" if lines and not wrong else "wrong" if lines else "refused"
        with self.writing():
            known = self.database.execute(
                "SELECT data_hash FROM entries WHERE scheduler=? AND number=?", (entry.scheduler, entry.number)
            ).fetchone()
            if known is None or known[0] != entry.data_hash:
                return
            self._forget_entry(entry.scheduler, entry.number)
            self.insert("tasks", rows.task_rows(entry.scheduler, entry.number, lines, wrong))
            work = rows.work_rows(entry.scheduler, entry.number, lines)
            self.insert("work", work)
            tally = Counter((row[0], *row[3:6], row[7]) for row in work)
            self.insert("tallies", ((*name, count) for name, count in tally.items()))
            self._file(entry.source, reports, reproduce)
            self.database.execute(
                "UPDATE entries SET state=?, examined=? WHERE scheduler=? AND number=?",
                (state, time.time(), entry.scheduler, entry.number),
            )

    def audited(self, block: int, reports: Sequence[CheckReport], reproduce: Reproduce) -> None:
        """What the checks of the chain's events found up to a block."""
        with self.writing():
            self._file(CHAIN, reports, reproduce)
            self.database.execute(
                "UPDATE progress SET audited = CASE WHEN block < ? THEN block ELSE ? END, audited_at=?",
                (block, block, time.time()),
            )

    def disputed(self, read: disputes.ReadDisputes) -> None:
        """All disputes over arithmetic, as of an audit."""
        with self.writing():
            disputes.fill(self.database, read)

    def served(self, read: ReadServices, reproduce: Reproduce) -> None:
        """What was read beside the market, and found there."""
        with self.writing():
            services.fill(self.database, read)
            self._file(SERVICES, read.reports, reproduce)

    def _file(self, source: str, reports: Sequence[CheckReport], reproduce: Reproduce) -> None:
        self._forget_source(source)
        merged: dict[str, list[Any]] = defaultdict(lambda: ["", 0, 0, 0])
        for one in reports:
            held = merged[one.number]
            held[0] = one.title
            for place, count in enumerate((one.ok, one.violations, one.inconclusive), start=1):
                held[place] += count
        self.insert("results", ((source, number, *held) for number, held in merged.items()))
        found = [one for report in reports for one in report_findings(report)][:_FINDINGS_KEPT]
        self.insert(
            "findings",
            (
                (
                    *(source, place, one.check, one.kind.value, one.message[:_TEXT], rows.order_of(one.task_id)),
                    *(one.party or "", one.role or "", one.place.block if one.place else -1),
                    *((one.action or "")[:_TEXT], reproduce(one)),
                )
                for place, one in enumerate(found)
            ),
        )

    # ---- gas, times and troubles

    def has_transaction(self, name: Hash32) -> bool:
        """Whether a transaction is in the index."""
        found = self.database.execute("SELECT 1 FROM transactions WHERE hash=?", (hexadecimal(name),))
        return found.fetchone() is not None

    def created(self, name: Hash32, block: int) -> None:
        """A transaction that was before the deployment stood."""
        with self.writing():
            self.insert("transactions", [(hexadecimal(name), block, rows.DEPLOYMENT, None, None)])

    def unpriced(self, most: int) -> list[tuple[Hash32, int]]:
        """Transactions whose gas is not known yet, with their blocks, newest first."""
        found = self.database.execute(
            "SELECT hash, block FROM transactions WHERE used IS NULL ORDER BY block DESC LIMIT ?", (most,)
        )
        return [(Hash32(bytes.fromhex(name[2:])), block) for name, block in found]

    def priced(self, gas: Mapping[Hash32, tuple[int, int]], times: Mapping[int, int]) -> None:
        """What transactions used and paid per gas, in wei, and blocks' times in Unix seconds."""
        with self.writing():
            self.database.executemany(
                "UPDATE transactions SET used=?, price=? WHERE hash=?",
                [(used, price, hexadecimal(name)) for name, (used, price) in gas.items()],
            )
            self.database.executemany(
                "UPDATE blocks SET time=? WHERE number=?", [(when, number) for number, when in times.items()]
            )

    def troubled(self, words: str) -> None:
        """Why the chain or a log cannot be read now; the next ``follow`` clears it."""
        with self.writing():
            self.database.execute("UPDATE progress SET trouble=?", (words[:_TEXT],))


def report_findings(report: CheckReport) -> Iterator[Any]:
    """All findings of a check."""
    return (one for result in report.results for one in result.findings)
