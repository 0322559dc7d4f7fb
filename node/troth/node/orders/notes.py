"""What this node found of others as a verifier, signed task by task, so that several verifiers' records make one.

A note is on stable storage before it leaves, and there is one for each task: never two with the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from troth.node.earning.database import NodeDatabase
from troth.protocol import typed_data
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed
from troth.protocol.market.notes import FindingNote, NotedTask, epoch_of, posted
from troth.protocol.market.papers import PAPERS_LIMIT, CheckPapers
from troth.protocol.types import ZERO_HASH, Address, Hash32, address_from_bytes, address_to_bytes

SCHEMA = """
CREATE TABLE IF NOT EXISTS notes (
    node BLOB NOT NULL, class BLOB NOT NULL, epoch INTEGER NOT NULL, number INTEGER NOT NULL,
    order_id BLOB NOT NULL, segment INTEGER NOT NULL, note BLOB NOT NULL, papers BLOB NOT NULL,
    PRIMARY KEY (node, class, epoch, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS noted_once ON notes (order_id, segment);
"""
NOTE_LIMIT = 1 << 12
KEPT_EPOCHS = 2
"""Epochs of which notes are kept: an earlier one is judged by what was posted of it."""


@dataclass(frozen=True, slots=True)
class NotedRecord:
    """A record that this node holds of another one."""

    node: Address
    execution_class: Hash32
    epoch: int
    notes: int


class Notes:
    """See the module. Used from the thread that owns the database."""

    def __init__(self, database: NodeDatabase) -> None:
        self._database = database
        database.create(SCHEMA)

    def add(
        self, papers: CheckPapers, segment: int, found: Mapping[str, int], place: Hash32,
        sign: Callable[[FindingNote], bytes],
    ) -> None:  # fmt: skip
        """Note the findings (``notes.coded``) of a task, by its order's id ``place``, unless they are noted already."""
        node, order = papers.nodes[segment], papers.order.message
        epoch = epoch_of(papers.draw.message.block_number)
        about = (address_to_bytes(node), bytes(order.execution_class), epoch)
        with self._database.transaction():
            if self._database.row("SELECT 1 FROM notes WHERE order_id=? AND segment=?", place, segment):
                return
            number, before = self._end(about)
            note = FindingNote(
                node=node,
                execution_class=order.execution_class,
                epoch=epoch,
                number=number + 1,
                before=before,
                order=place,
                segment=segment,
                result=Hash32(typed_data.struct_hash(papers.results[segment].message)),
                **found,
            )
            written = canonical.encode(Signed(note, sign(note))), canonical.encode(posted(papers))
            values = (*about, number + 1, place, segment, *written)
            self._database.write("INSERT INTO notes VALUES (?,?,?,?,?,?,?,?)", *values)
            self._database.write("DELETE FROM notes WHERE epoch<=?", epoch - KEPT_EPOCHS)

    def _end(self, about: tuple[bytes, bytes, int]) -> tuple[int, Hash32]:
        """The number of a record's last note, and its hash."""
        query = "SELECT number, note FROM notes WHERE node=? AND class=? AND epoch=? ORDER BY number DESC LIMIT 1"
        found = self._database.row(query, *about)
        if found is None:
            return 0, ZERO_HASH
        last: Signed[FindingNote] = canonical.decode(Signed[FindingNote], found[1], NOTE_LIMIT)
        return found[0], Hash32(typed_data.struct_hash(last.message))

    def records(self) -> tuple[NotedRecord, ...]:
        """Every record that is held."""
        query = "SELECT node, class, epoch, COUNT(*) FROM notes GROUP BY node, class, epoch ORDER BY node, class, epoch"
        found = self._database.rows(query)
        return tuple(
            NotedRecord(address_from_bytes(bytes(node)), Hash32(kind), epoch, count)
            for node, kind, epoch, count in found
        )

    def of(self, node: Address | None = None) -> Iterator[NotedTask]:
        """All notes, of one node or of all, in the order of their records."""
        where = "" if node is None else "WHERE node=?"
        query = f"SELECT note, papers FROM notes {where} ORDER BY node, class, epoch, number"  # noqa: S608
        for note, papers in self._database.rows(query, *(() if node is None else (address_to_bytes(node),))):
            signed: Signed[FindingNote] = canonical.decode(Signed[FindingNote], note, NOTE_LIMIT)
            yield NotedTask(signed, canonical.decode(CheckPapers, papers, PAPERS_LIMIT))
