"""What this node signed about orders, on stable storage before it leaves: never two different things.

An order's segment is begun once: the line is written before the first row is signed, and who lost the session after
it refuses to begin again, since two chains of rows convict. A result, a trace commitment and a verdict are each signed
once and given again as they were. Check papers stay, so that a verifier that was restarted still opens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from troth.node.earning.database import NodeDatabase
from troth.node.errors import AlreadySigned
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed
from troth.protocol.types import Hash32

SCHEMA = """
CREATE TABLE IF NOT EXISTS begun (
    order_id BLOB NOT NULL, segment INTEGER NOT NULL, role TEXT NOT NULL, scheduler TEXT NOT NULL,
    reference_block INTEGER NOT NULL, papers BLOB NOT NULL, PRIMARY KEY (order_id, segment, role)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS words (
    order_id BLOB NOT NULL, segment INTEGER NOT NULL, kind TEXT NOT NULL, word BLOB NOT NULL,
    PRIMARY KEY (order_id, segment, kind)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS beginning (block INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS seen (block INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS openings (
    order_id BLOB NOT NULL, segment INTEGER NOT NULL, subject BLOB NOT NULL, sealed BLOB NOT NULL,
    PRIMARY KEY (order_id, segment, subject)
) WITHOUT ROWID;
"""
RESULT, COMMITMENT, VERDICT, IMPRINTS = "result", "commitment", "verdict", "imprints"
READ_TOKENS = "read tokens"
"""What is kept beside a result of a first segment, as uint32 words: a dispute over its rows begins with them."""
OPENINGS = 4
"""Sets of tiles that are opened of one trace: verifiers that stayed silent are replaced, and the tiles follow."""

Message = TypeVar("Message")


@dataclass(frozen=True, slots=True)
class BegunSegment:
    """A segment of an order that was begun here; ``papers`` are the check's; of an inference the salt of its heads."""

    order: Hash32
    segment: int
    role: str
    scheduler: str
    reference_block: int
    papers: bytes = b""


class SignedWords:
    """See the module. Used from the thread that owns the database."""

    def __init__(self, database: NodeDatabase) -> None:
        self._database = database
        database.create(SCHEMA)

    def beginning(self, block: int, age: int) -> int:
        """The block at which these records began: ``block`` where nothing is in them, 0 where that was not noted.

        They begin anew where they were written last more than ``age`` blocks ago: they may be an old copy.
        """
        with self._database.transaction():
            found, seen = (
                self._database.row("SELECT block FROM beginning"),
                self._database.row("SELECT block FROM seen"),
            )
            if found is None:
                found = (0 if self._database.row("SELECT 1 FROM begun") else block,)
                self._database.write("INSERT INTO beginning VALUES (?)", *found)
            elif seen is not None and block > seen[0] + age:
                found = (block,)
                self._database.write("UPDATE beginning SET block=?", *found)
            self.note_block(block)
        return int(found[0])

    def note_block(self, block: int) -> None:
        """These records are in use at this block."""
        with self._database.transaction():
            self._database.write("DELETE FROM seen")
            self._database.write("INSERT INTO seen VALUES (?)", block)

    def begin(self, begun: BegunSegment) -> None:
        """Note that a segment is begun; a check may be begun again, an inference may not.

        Raises AlreadySigned where an inference was begun before.
        """
        with self._database.transaction():
            known = self.begun(begun.order, begun.segment, begun.role)
            if known is not None and begun.role == "infer":
                what = "this segment was begun here and broke off; two chains of rows would convict this node"
                raise AlreadySigned(what, begun.segment, "Conclude it if it was complete; else order again.")
            if known is not None and self.find(begun.order, begun.segment, COMMITMENT) is not None:
                return  # what was committed to is opened for the check that it was made for
            values = (begun.order, begun.segment, begun.role, begun.scheduler, begun.reference_block, begun.papers)
            self._database.write("INSERT OR REPLACE INTO begun VALUES (?,?,?,?,?,?)", *values)

    def begun(self, order: bytes, segment: int, role: str) -> BegunSegment | None:
        """A segment that was begun in a role."""
        names = "order_id, segment, role, scheduler, reference_block, papers"
        query = f"SELECT {names} FROM begun WHERE order_id=? AND segment=? AND role=?"  # noqa: S608
        found = self._database.row(query, order, segment, role)
        return None if found is None else BegunSegment(Hash32(found[0]), *found[1:])

    def find(self, order: bytes, segment: int, kind: str) -> bytes | None:
        """What was signed, as the canonical JSON that travels; None if nothing was."""
        found = self._database.row(
            "SELECT word FROM words WHERE order_id=? AND segment=? AND kind=?", order, segment, kind
        )
        return None if found is None else bytes(found[0])

    def any(self, order: bytes, kind: str) -> bytes | None:
        """What was signed of a kind about whichever segment of an order this node served."""
        found = self._database.row("SELECT word FROM words WHERE order_id=? AND kind=? ORDER BY segment", order, kind)
        return None if found is None else bytes(found[0])

    def keep(self, order: bytes, segment: int, kind: str, data: bytes) -> None:
        """Keep something beside what is signed of a segment, once; it goes with it."""
        with self._database.transaction():
            self._database.write("INSERT OR IGNORE INTO words VALUES (?,?,?,?)", order, segment, kind, data)

    def sign_once(
        self,
        place: tuple[bytes, int],
        kind: str,
        message: Message,
        sign: Callable[[], bytes],
        *,
        beside: Callable[[Signed[Message]], None] = lambda _signed: None,
    ) -> bytes:
        """The signed message as canonical JSON, made now or kept from before; ``beside`` is written with it.

        Raises AlreadySigned where another message was signed at this place.
        """
        order, segment = place
        with self._database.transaction():
            known = self.find(order, segment, kind)
            if known is not None:
                if not known.startswith(b'{"message":' + canonical.encode(message) + b',"signature":'):
                    raise AlreadySigned(f"another {kind} was signed here", segment, "Ask for the one that was signed.")
                return known
            signed = Signed(message, sign())
            word = canonical.encode(signed)
            self._database.write("INSERT INTO words VALUES (?,?,?,?)", order, segment, kind, word)
            beside(signed)
        return word

    def opening(self, order: bytes, segment: int, subject: bytes) -> bytes | None:
        """What was sealed for these secrets and commitments before."""
        query = "SELECT sealed FROM openings WHERE order_id=? AND segment=? AND subject=?"
        found = self._database.row(query, order, segment, subject)
        return None if found is None else bytes(found[0])

    def require_openable(self, order: bytes, segment: int) -> None:
        """Raise AlreadySigned where this trace was opened for as many sets of commitments as it may be."""
        found = self._database.row("SELECT COUNT(*) FROM openings WHERE order_id=? AND segment=?", order, segment)
        if found is not None and found[0] >= OPENINGS:
            what = "this trace was opened for other commitments already"
            raise AlreadySigned(what, found[0], "Ask for one of the openings that were made.")

    def keep_opening(self, place: tuple[bytes, int], subject: bytes, sealed: bytes) -> bytes:
        """Keep a sealed opening; returns the one that is kept, so that asking again gives the same bytes.

        Raises AlreadySigned as ``require_openable`` does: questions that come at once all pass that one before any
        opening is kept, so the bound holds only here.
        """
        with self._database.transaction():
            known = self.opening(*place, subject)
            if known is not None:
                return known
            self.require_openable(*place)
            self._database.write("INSERT INTO openings VALUES (?,?,?,?)", *place, subject, sealed)
        return sealed

    def older_than(self, block: int) -> tuple[BegunSegment, ...]:
        """What was begun for orders with a reference block before ``block``."""
        names = "order_id, segment, role, scheduler, reference_block"
        found = self._database.rows(f"SELECT {names} FROM begun WHERE reference_block<?", block)  # noqa: S608
        return tuple(BegunSegment(Hash32(line[0]), *line[1:]) for line in found)

    def forget(self, begun: BegunSegment) -> None:
        """Drop all lines of an order's segment that nobody can ask about any more."""
        with self._database.transaction():
            for table in ("begun", "words", "openings"):
                statement = f"DELETE FROM {table} WHERE order_id=? AND segment=?"  # noqa: S608
                self._database.write(statement, begun.order, begun.segment)
