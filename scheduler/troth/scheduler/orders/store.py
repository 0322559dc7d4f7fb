"""Orders on disk: steps that are written once, and prompts and answers apart from them, which go when they may."""

from __future__ import annotations

import msgspec

from troth.protocol.market import canonical
from troth.protocol.types import Hash32
from troth.scheduler.orders.steps import KINDS, Admitted, Step
from troth.scheduler.orders.story import Story
from troth.scheduler.tabs.database import Database, Statement

_LIMIT = 1 << 24


class OrderStore:
    """Stories by order. Those that are open are kept in memory; the others are read when they are asked for."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._open: dict[Hash32, Story] = {}
        self._beginning: set[Hash32] = set()
        for (order_id,) in database.read("SELECT order_id FROM orders WHERE open = 1"):
            story = self._read(Hash32(order_id))
            if story is not None:
                self._open[story.order_id] = story

    def opened(self) -> list[Story]:
        """Orders of which something may still be asked; without those that are not on the disk yet."""
        return [story for story in self._open.values() if story.order_id not in self._beginning]

    def known(self, order_id: Hash32) -> bool:
        """Whether the order was taken here."""
        if order_id in self._open:
            return True
        return bool(self._database.read("SELECT 1 FROM orders WHERE order_id = ?", order_id))

    def get(self, order_id: Hash32) -> Story | None:
        """The story of an order; None for one that was never taken."""
        return self._open.get(order_id) or self._read(order_id)

    def by_number(self, tab: Hash32, number: int) -> Story | None:
        """The order behind a number of a tab."""
        rows = self._database.read("SELECT order_id FROM orders WHERE tab = ? AND number = ?", tab, number)
        return self.get(Hash32(rows[0][0])) if rows else None

    async def begin(self, story: Story, *beside: Statement) -> None:
        """Take an order, with what changes in the books; raises StorageFailed, and then it was not taken."""
        order, block = story.order, story.admitted.admission.message.block_number
        row = (
            "INSERT INTO orders (order_id, tab, number, block) VALUES (?, ?, ?, ?)",
            (story.order_id, order.tab, order.sequence, block),
        )
        private = [("INSERT INTO private VALUES (?, ?, ?)", (story.order_id, name, data)) for name, data in _of(story)]
        self._open[story.order_id] = story
        self._beginning.add(story.order_id)
        try:
            await self._database.commit(row, *private, _step(story.order_id, story.admitted), *beside)
        except BaseException:
            self._open.pop(story.order_id, None)
            raise
        finally:
            self._beginning.discard(story.order_id)

    async def note(self, story: Story, step: Step, *beside: Statement) -> None:
        """Journal a step, then fold it; raises StorageFailed if it was journalled before, or the disk refuses."""
        await self._database.commit(_step(story.order_id, step), *beside)
        story.note(step)

    async def note_answer(self, story: Story, step: Step, tokens: tuple[int, ...], *beside: Statement) -> None:
        """The same with the answer's tokens."""
        values = (story.order_id, "tokens", msgspec.msgpack.encode(tokens))
        story.tokens = tokens
        await self.note(story, step, ("INSERT OR REPLACE INTO private VALUES (?, ?, ?)", values), *beside)

    async def forget(self, story: Story) -> None:
        """Nothing of prompt and answer is owed any more: remove them, and close the story."""
        await self._database.commit(
            ("DELETE FROM private WHERE order_id = ?", (story.order_id,)),
            ("UPDATE orders SET open = 0 WHERE order_id = ?", (story.order_id,)),
        )
        story.request = story.salt = story.tokens = None
        self._open.pop(story.order_id, None)

    def _read(self, order_id: Hash32) -> Story | None:
        story: Story | None = None
        query = "SELECT kind, data FROM steps WHERE order_id = ? ORDER BY number"
        for kind, data in self._database.read(query, order_id):
            step = canonical.decode(KINDS[kind], data, _LIMIT)
            if isinstance(step, Admitted):
                story = Story(order_id, step)
            elif story is not None:
                story.note(step)
        if story is not None:
            private = dict(self._database.read("SELECT name, data FROM private WHERE order_id = ?", order_id))
            story.request = private.get("request")
            story.salt = Hash32(private["salt"]) if "salt" in private else None
            found = private.get("tokens")
            story.tokens = None if found is None else msgspec.msgpack.decode(found, type=tuple[int, ...])
        return story


def _of(story: Story) -> list[tuple[str, bytes]]:
    values = {"request": story.request, "salt": story.salt}
    return [(name, value) for name, value in values.items() if value is not None]


def _step(order_id: Hash32, step: Step) -> Statement:
    """Its key is order, kind and part: a step that stands is never written again."""
    return (
        "INSERT INTO steps SELECT ?, COUNT(*), ?, ?, ? FROM steps WHERE order_id = ?",
        (order_id, type(step).__name__, step.part, canonical.encode(step), order_id),
    )
