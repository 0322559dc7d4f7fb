"""Orders on disk: steps that are written once, and prompts and answers apart from them, which go when they may.

Only what runs is held in memory, and what was asked for lately: prompts and answers are kept for hours, for whoever may
have to be shown them, and a scheduler that held them all would grow with every order.
"""

from __future__ import annotations

from collections import OrderedDict
from weakref import WeakValueDictionary

import msgspec

from troth.protocol.market import canonical
from troth.protocol.types import Hash32
from troth.scheduler.orders.history import OrderHistory
from troth.scheduler.orders.steps import KINDS, AdmittedStep, AnsweredStep, DrawnStep, FailedStep, OrderStep, kind_of
from troth.scheduler.tabs.database import SchedulerDatabase, Statement, StorageFailed

_LIMIT = 1 << 24
REMEMBERED = 256
"""Histories that are held beside those that run: what its client does with an answer, it does within seconds."""

FORGOTTEN, FAILED, ANSWERED, RUNNING = range(4)
"""What is kept of an order, in the column of that name: nothing private, or its text and what became of it."""


class OrderStore:
    """Histories by order. There is one object for each order, as long as anybody holds it."""

    def __init__(self, database: SchedulerDatabase) -> None:
        self._database = database
        self._running: dict[Hash32, OrderHistory] = {}
        self._beginning: set[Hash32] = set()
        self._held: WeakValueDictionary[Hash32, OrderHistory] = WeakValueDictionary()
        self._lately: OrderedDict[Hash32, OrderHistory] = OrderedDict()
        for (order_id,) in database.read("SELECT order_id FROM orders WHERE kept = ?", RUNNING):
            history = self._read(Hash32(order_id))
            if history is not None:
                self._running[history.order_id] = self._held[history.order_id] = history

    def running(self) -> list[OrderHistory]:
        """Orders without an end: neither drawn nor failed; without those that are not on the disk yet."""
        return [history for history in self._running.values() if history.order_id not in self._beginning]

    def kept(self, kind: int, block: int) -> list[Hash32]:
        """Orders that ended as FAILED or ANSWERED, whose text is still kept, with a reference block by ``block``."""
        query = "SELECT order_id FROM orders WHERE kept = ? AND block <= ? ORDER BY block"
        return [Hash32(order_id) for (order_id,) in self._database.read(query, kind, block)]

    def known(self, order_id: Hash32) -> bool:
        """Whether the order was taken here."""
        if order_id in self._held:
            return True
        return bool(self._database.read("SELECT 1 FROM orders WHERE order_id = ?", order_id))

    def get(self, order_id: Hash32) -> OrderHistory | None:
        """The history of an order; None for one that was never taken."""
        history = self._held.get(order_id) or self._read(order_id)
        if history is not None:
            self._remember(history)
        return history

    def by_number(self, tab: Hash32, number: int) -> OrderHistory | None:
        """The order behind a number of a tab."""
        rows = self._database.read("SELECT order_id FROM orders WHERE tab = ? AND number = ?", tab, number)
        return self.get(Hash32(rows[0][0])) if rows else None

    async def begin(self, history: OrderHistory, *beside: Statement) -> None:
        """Take an order, with what changes in the books; raises StorageFailed, and then it was not taken."""
        order = history.order
        row = (
            "INSERT INTO orders (order_id, tab, number, block, kept) VALUES (?, ?, ?, ?, ?)",
            (history.order_id, order.tab, order.sequence, order.reference_block, RUNNING),
        )
        private = [
            ("INSERT INTO private VALUES (?, ?, ?)", (history.order_id, name, data)) for name, data in _of(history)
        ]
        self._running[history.order_id] = self._held[history.order_id] = history
        self._beginning.add(history.order_id)
        try:
            await self._database.commit(row, *private, _step(history.order_id, history.admitted), *beside)
        except StorageFailed:
            # Not where its client was cut off meanwhile: what is on its way to the disk is an order that was taken.
            del self._running[history.order_id], self._held[history.order_id]
            raise
        finally:
            self._beginning.discard(history.order_id)

    async def note(self, history: OrderHistory, step: OrderStep, *beside: Statement) -> None:
        """Journal a step, then fold it; raises StorageFailed if it was journalled before, or the disk refuses."""
        ended = {DrawnStep: ANSWERED, FailedStep: FAILED}.get(type(step))
        kept = () if ended is None else (_kept(history.order_id, ended),)
        await self._database.commit(_step(history.order_id, step), *kept, *beside)
        history.note(step)
        if ended is not None:
            self._end(history)

    async def note_answer(
        self,
        history: OrderHistory,
        answered: AnsweredStep,
        drawn: DrawnStep,
        tokens: tuple[int, ...],
        *beside: Statement,
    ) -> None:
        """Journal an answer with its tokens and its draw, as one: a client is told both at once. Raises as ``note``."""
        order_id = history.order_id
        text = ("INSERT OR REPLACE INTO private VALUES (?, ?, ?)", (order_id, "tokens", msgspec.msgpack.encode(tokens)))
        steps = (_step(order_id, answered), _step(order_id, drawn))
        await self._database.commit(*steps, _kept(order_id, ANSWERED), text, *beside)
        history.note(answered)
        history.note(drawn)
        history.tokens = tokens
        self._end(history)

    def _end(self, history: OrderHistory) -> None:
        """It runs no more."""
        if self._running.pop(history.order_id, None) is not None:
            self._remember(history)

    async def forget(self, history: OrderHistory) -> None:
        """Nothing of prompt and answer is owed any more: remove them, and close the history."""
        await self._database.commit(
            ("DELETE FROM private WHERE order_id = ?", (history.order_id,)),
            _kept(history.order_id, FORGOTTEN),
        )
        history.request = history.salt = history.tokens = None
        self._lately.pop(history.order_id, None)

    def _remember(self, history: OrderHistory) -> None:
        """Hold it until as many others were asked for since."""
        self._held[history.order_id] = self._lately[history.order_id] = history
        self._lately.move_to_end(history.order_id)
        while len(self._lately) > REMEMBERED:
            self._lately.popitem(last=False)

    def _read(self, order_id: Hash32) -> OrderHistory | None:
        history: OrderHistory | None = None
        query = "SELECT kind, data FROM steps WHERE order_id = ? ORDER BY number"
        for kind, data in self._database.read(query, order_id):
            step = canonical.decode(KINDS[kind], data, _LIMIT)
            if isinstance(step, AdmittedStep):
                history = OrderHistory(order_id, step)
            elif history is not None:
                history.note(step)
        if history is not None:
            text = "SELECT name, data FROM private WHERE order_id = ? AND name IN ('request', 'salt', 'tokens')"
            private = dict(self._database.read(text, order_id))
            history.request = private.get("request")
            history.salt = Hash32(private["salt"]) if "salt" in private else None
            found = private.get("tokens")
            history.tokens = None if found is None else msgspec.msgpack.decode(found, type=tuple[int, ...])
        return history


def _of(history: OrderHistory) -> list[tuple[str, bytes]]:
    values = {"request": history.request, "salt": history.salt}
    return [(name, value) for name, value in values.items() if value is not None]


def _kept(order_id: Hash32, what: int) -> Statement:
    return "UPDATE orders SET kept = ? WHERE order_id = ?", (what, order_id)


def _step(order_id: Hash32, step: OrderStep) -> Statement:
    """Its key is order, kind and part: a step that stands is never written again."""
    return (
        "INSERT INTO steps SELECT ?, COUNT(*), ?, ?, ? FROM steps WHERE order_id = ?",
        (order_id, kind_of(type(step)), step.part, canonical.encode(step), order_id),
    )
