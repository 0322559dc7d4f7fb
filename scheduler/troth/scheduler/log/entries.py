"""Entries of the log: each order is given one with its draw, and its client the promise of it.

An entry takes orders for an hour, or a thousand of them. It is posted once everything about them is final: the secret
was shown and did not hit, or the check is over, or the time for both has passed. So what was promised is always in the
entry that was named, however late a check ends. Data is kept for as long as there is a disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from troth.protocol.market import log_data, lottery, prices
from troth.protocol.market.ballots import hides_verifiers
from troth.protocol.market.calls import build
from troth.protocol.market.log_data import LogLine
from troth.protocol.market.messages import summons_id
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import LogCounts, SummonsKind
from troth.protocol.market.state import State
from troth.protocol.types import Address, Hash32
from troth.scheduler.log.lines import counts_of, line_of
from troth.scheduler.orders.context import Ledger
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.orders.store import OrderStore
from troth.scheduler.tabs.database import SchedulerDatabase, Statement

log = logging.getLogger(__name__)

ENTRY_SECONDS = 3600.0
ENTRY_ORDERS = 1000
NEWEST = 32
"""Numbers that GET /v1/log lists."""
REORGANISED_BLOCKS = 12
"""After so many an entry that a reorganisation took is posted again: the chain node may include it by itself before."""


@dataclass(slots=True)
class _OpenEntry:
    number: int
    opened: float
    orders: int


class LogBook:
    """The log of one scheduler."""

    def __init__(
        self,
        database: SchedulerDatabase,
        store: OrderStore,
        ledger: Ledger,
        scheduler: Address,
        *,
        seconds: float = ENTRY_SECONDS,
        orders: int = ENTRY_ORDERS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._store = store
        self._ledger = ledger
        self._scheduler = scheduler
        self._seconds = seconds
        self._orders = orders
        self._clock = clock
        rows = database.read("SELECT number, opened, closed FROM log_entry ORDER BY number DESC LIMIT 1")
        number, opened, closed = rows[0] if rows else (0, 0.0, 1)
        (count,) = database.read("SELECT COUNT(*) FROM log_line WHERE entry = ?", number)[0]
        self._open = None if closed else _OpenEntry(number, opened, count)
        self._last = number
        self._cast: set[Hash32] = set()

    def assign(self, history: OrderHistory) -> tuple[int, list[Statement]]:
        """The entry that an order with results is promised for."""
        now, statements = self._clock(), list[Statement]()
        if self._open is not None and (self._open.orders >= self._orders or now - self._open.opened >= self._seconds):
            statements.append(_closing(self._open.number))
            self._open = None
        if self._open is None:
            number = max(self._last, self._ledger.state.head_of(self._scheduler)[0]) + 1
            self._open, self._last = _OpenEntry(number, now, 0), number
        # Again with each order: the one that opened the entry may not have come to the disk.
        row = "INSERT OR IGNORE INTO log_entry (number, opened) VALUES (?, ?)"
        statements.append((row, (self._open.number, self._open.opened)))
        self._open.orders += 1
        last = history.results[-1]
        assert history.answered is not None
        values = (history.order_id, self._open.number, str(history.answered.fee), prices.positions(last))
        row = "INSERT OR IGNORE INTO log_line (order_id, entry, fee, positions) VALUES (?, ?, ?, ?)"
        statements.append((row, values))
        return self._open.number, statements

    async def post_due(self) -> None:
        """Close the entry whose time is over, and post what is final, in order; raises ChainError."""
        if self._open is not None and self._clock() - self._open.opened >= self._seconds:
            self._open = None
        current = 0 if self._open is None else self._open.number
        if self._database.read("SELECT 1 FROM log_entry WHERE closed = 0 AND number != ?", current):
            await self._database.commit(("UPDATE log_entry SET closed = 1 WHERE number != ?", (current,)))
        last, _ = self._ledger.state.head_of(self._scheduler)
        await self._fill_gaps(last)
        query = "SELECT number, data, posted FROM log_entry WHERE closed = 1 AND (posted IS NULL OR number > ?)"
        for number, data, posted in self._database.read(f"{query} ORDER BY number", last):
            if posted is not None and self._ledger.block < posted + REORGANISED_BLOCKS:
                return
            if not await self._post(number, data):
                return

    async def _fill_gaps(self, last: int) -> None:
        """Close as empty what never came to the disk: the contract takes a number only after the one before it."""
        known = {number for (number,) in self._database.read("SELECT number FROM log_entry WHERE number > ?", last)}
        missing = [number for number in range(last + 1, max(known, default=last)) if number not in known]
        if missing:
            log.warning("entries %s of the log were never stored and are posted without an order", missing)
            row = "INSERT OR IGNORE INTO log_entry (number, opened, closed) VALUES (?, ?, 1)"
            await self._database.commit(*((row, (number, self._clock())) for number in missing))

    def lacking_ballots(self) -> list[OrderHistory]:
        """Orders of entries that are not posted, of which all verifiers have spoken and some ballots are missing: one
        was away, or this scheduler was killed between them."""
        query = (
            "SELECT DISTINCT order_id FROM steps WHERE kind = 'Judged' AND order_id IN "
            "(SELECT order_id FROM log_line JOIN log_entry ON entry = number WHERE posted IS NULL)"
        )
        checked = {Hash32(order_id) for (order_id,) in self._database.read(query)}
        self._cast &= checked
        found = [history for one in checked - self._cast if (history := self._store.get(one)) is not None]
        for history in found:
            if history.is_checked and (history.is_cast or not is_hidden(history, self._ledger.state)):
                self._cast.add(history.order_id)
        return [history for history in found if history.is_checked and history.order_id not in self._cast]

    def data(self, number: int) -> bytes | None:
        """What is served of a posted entry."""
        rows = self._database.read("SELECT data FROM log_entry WHERE number = ? AND posted IS NOT NULL", number)
        return bytes(rows[0][0]) if rows and rows[0][0] is not None else None

    def newest(self) -> list[int]:
        """Numbers of the last posted entries, newest first."""
        query = "SELECT number FROM log_entry WHERE posted IS NOT NULL ORDER BY number DESC LIMIT ?"
        return [number for (number,) in self._database.read(query, NEWEST)]

    def overdue(self) -> list[int]:
        """Entries that were closed and are not on chain yet."""
        return [
            row[0] for row in self._database.read("SELECT number FROM log_entry WHERE closed = 1 AND posted IS NULL")
        ]

    async def _post(self, number: int, data: bytes | None) -> bool:
        if data is None:
            made = self._data(number)
            if made is None:
                return False
            data = made
            # On disk before it is posted: what the chain has a hash of is never made a second time.
            await self._database.commit(("UPDATE log_entry SET data = ? WHERE number = ?", (data, number)))
        if self._ledger.state.head_of(self._scheduler)[0] < number:
            lines = log_data.decode_data(data)
            counts = self._counts(number, lines)
            root, hashed = log_data.data_root(data), log_data.data_hash(data)
            call = build(self._ledger.contracts, Part.LOG, "post", number, root, counts, hashed)
            await self._ledger.execute(call)
            log.info("entry %d of the log was posted: %d orders", number, len(lines))
        block = self._ledger.block
        await self._database.commit(("UPDATE log_entry SET posted = ? WHERE number = ?", (block, number)))
        return True

    def _data(self, number: int) -> bytes | None:
        """The data of an entry, None while something in it may still change."""
        lines: list[LogLine] = []
        for (order_id,) in self._database.read("SELECT order_id FROM log_line WHERE entry = ?", number):
            history = self._store.get(Hash32(order_id))
            if history is None or not is_final(
                history, self._ledger.state, self._ledger.block, self._ledger.parameters.lag
            ):
                return None
            lines.append(line_of(history, veiled=is_hidden(history, self._ledger.state)))
        return log_data.encode_data(lines)

    def _counts(self, number: int, lines: tuple[LogLine, ...]) -> LogCounts:
        rows = self._database.read("SELECT fee, positions FROM log_line WHERE entry = ?", number)
        return counts_of(lines, sum(row[1] for row in rows), sum(int(row[0]) for row in rows))


def is_final(history: OrderHistory, state: State, block: int, lag: int) -> bool:
    """Whether an order's line can change no more."""
    assert history.drawn is not None
    if any(_is_summoned(history.order_id, segment, state) for segment in range(history.segments)):
        return False
    draw = history.drawn.draw.message
    if history.revealed is None:
        return block > draw.block_number + lag
    if not lottery.hits(history.revealed.secret, draw.beta, history.order.check_rate):
        return True
    whole = history.is_checked and (history.is_cast or not is_hidden(history, state))
    return whole or block > draw.block_number + 2 * lag


def is_hidden(history: OrderHistory, state: State) -> bool:
    """Whether the log shows ballots of an order in place of verdicts."""
    definition = state.classes[history.order.execution_class]
    return hides_verifiers(definition.name, definition.verifiers, history.segments)


def _is_summoned(order: Hash32, segment: int, state: State) -> bool:
    record = state.summons.get(summons_id(order, SummonsKind.CHECK, segment))
    return record is not None and record.answered is None


def _closing(number: int) -> Statement:
    return "UPDATE log_entry SET closed = 1 WHERE number = ?", (number,)
