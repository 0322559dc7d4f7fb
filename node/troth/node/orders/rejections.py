"""Own rejecting verdicts that are due in court, kept until whoever opens cases has taken them over.

A rejection earns nothing until the result falls, so a verifier brings it itself; prompt and answer are kept with it,
since an opener that cannot show them loses its bond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from troth.node.earning.database import NodeDatabase
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed
from troth.protocol.market.papers import CheckPapers, Spoken
from troth.protocol.market.signed import TraceCommitment, Verdict
from troth.protocol.types import Hash32
from troth.protocol.wire_market import SPOKEN_LIMIT

SCHEMA = """
CREATE TABLE IF NOT EXISTS rejections (
    order_id BLOB NOT NULL, segment INTEGER NOT NULL, rejection BLOB NOT NULL, taken INTEGER NOT NULL DEFAULT 0,
    told BLOB, PRIMARY KEY (order_id, segment)
) WITHOUT ROWID;
"""
LIMIT = 1 << 24
_WAITING = "SELECT order_id, segment FROM rejections WHERE taken=0"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A verdict that says no, and what its verifier was given and computed.

    ``request`` is canonical and empty where the verifier was not shown it; ``tokens`` are the answer's, at the last
    segment. The verifier's own trace, with ``root`` and ``salt``, is in its store of traces.
    """

    order: Hash32
    segment: int
    papers: CheckPapers
    commitment: Signed[TraceCommitment]
    verdict: Signed[Verdict]
    root: Hash32
    salt: Hash32
    request: bytes
    tokens: tuple[int, ...]


class RejectionOpener(Protocol):
    """Who brings rejections to the court."""

    async def rejected(self, rejection: Rejection) -> bool:
        """Take a rejection over for good, True, or leave it to be offered again, False; asked again after a restart."""


class Rejections:
    """See the module. Used from the thread that owns the database."""

    def __init__(self, database: NodeDatabase) -> None:
        self._database = database
        self._offered: dict[tuple[bytes, int], Rejection] = {}
        database.create(SCHEMA)

    def keep(self, rejection: Rejection) -> None:
        """Keep one, beside its verdict."""
        with self._database.transaction():
            values = (rejection.order, rejection.segment, canonical.encode(rejection))
            self._database.write(
                "INSERT OR IGNORE INTO rejections (order_id, segment, rejection) VALUES (?,?,?)", *values
            )

    def waiting(self) -> tuple[Rejection, ...]:
        """Those that nobody has taken over yet; each is read once, however often it is offered."""
        named = [(bytes(order), segment) for order, segment in self._database.rows(_WAITING)]
        self._offered = {place: self._offered.get(place) or self._read(*place) for place in named}
        return tuple(self._offered.values())

    def _read(self, order: bytes, segment: int) -> Rejection:
        query = "SELECT rejection FROM rejections WHERE order_id=? AND segment=?"
        ((line,),) = self._database.rows(query, order, segment)
        return canonical.decode(Rejection, line, LIMIT)

    def of(self, order: bytes) -> tuple[Rejection, ...]:
        """Those of one order, taken over or not."""
        found = self._database.rows("SELECT rejection FROM rejections WHERE order_id=? ORDER BY segment", order)
        return tuple(canonical.decode(Rejection, line[0], LIMIT) for line in found)

    def tell(self, order: bytes, segment: int, spoken: Spoken) -> None:
        """Keep what all verifiers signed, unless more was told before; nothing where this node did not reject."""
        known = self.told(order, segment)
        if known is not None and (len(known.verdicts), known.text is not None) > (
            len(spoken.verdicts),
            spoken.text is not None,
        ):
            return
        with self._database.transaction():
            query = "UPDATE rejections SET told=? WHERE order_id=? AND segment=?"
            self._database.write(query, canonical.encode(spoken), order, segment)

    def told(self, order: bytes, segment: int) -> Spoken | None:
        """What all verifiers of a segment signed, as far as this node was told."""
        found = self._database.row("SELECT told FROM rejections WHERE order_id=? AND segment=?", order, segment)
        return None if found is None or found[0] is None else canonical.decode(Spoken, found[0], SPOKEN_LIMIT)

    def took(self, rejection: Rejection) -> None:
        """It is somebody else's from now on."""
        with self._database.transaction():
            self._database.write(
                "UPDATE rejections SET taken=1 WHERE order_id=? AND segment=?", rejection.order, rejection.segment
            )

    def forget(self, order: bytes, segment: int) -> None:
        """Drop one that no court hears any more, with the prompt in it."""
        with self._database.transaction():
            self._database.write("DELETE FROM rejections WHERE order_id=? AND segment=?", order, segment)
