"""Claims that this node files: which numbers at which worth, so that an objection can be answered after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from troth.node.earning.database import NodeDatabase
from troth.protocol.market import claims
from troth.protocol.market.claims import SumTree
from troth.protocol.market.types import Claim
from troth.protocol.types import Hash32

SCHEMA = """
CREATE TABLE IF NOT EXISTS claims (
    tab BLOB NOT NULL, root BLOB NOT NULL, amounts TEXT NOT NULL, objected TEXT NOT NULL DEFAULT '[]',
    owed TEXT NOT NULL,    filed_at REAL NOT NULL, PRIMARY KEY (tab, root)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Filed:
    """A claim that was filed, or was about to be; ``objected`` are the numbers that were asked for so far.

    ``owed`` is what it shows, cumulative.
    """

    tab: Hash32
    root: Hash32
    amounts: Mapping[int, int]
    objected: tuple[int, ...]
    owed: int
    filed_at: float = 0.0

    def tree(self, claim: Claim) -> SumTree:
        """The tree that its root is of."""
        return claims.build(claim.first, claim.last, self.amounts)


class ClaimsRecord:
    """See the module. Used from the thread that owns the database."""

    def __init__(self, database: NodeDatabase) -> None:
        self._database = database
        database.create(SCHEMA)

    def keep(self, filed: Filed) -> None:
        """Keep a claim before it is sent."""
        amounts = json.dumps({str(number): str(amount) for number, amount in filed.amounts.items()})
        with self._database.transaction():
            self._database.write(
                "INSERT OR REPLACE INTO claims (tab, root, amounts, owed, filed_at) VALUES (?,?,?,?,?)",
                *(filed.tab, filed.root, amounts, str(filed.owed), filed.filed_at),
            )

    def of(self, tab: Hash32) -> tuple[Filed, ...]:
        """The claims of a tab that are not known to be over."""
        found = self._database.rows("SELECT root, amounts, objected, owed, filed_at FROM claims WHERE tab=?", tab)
        return tuple(_filed(tab, *line) for line in found)

    def note_objections(self, filed: Filed, numbers: Iterable[int]) -> None:
        """Numbers that the payer asks to see: given up if the claim falls for them."""
        objected = json.dumps(sorted({*filed.objected, *numbers}))
        with self._database.transaction():
            self._database.write("UPDATE claims SET objected=? WHERE tab=? AND root=?", objected, filed.tab, filed.root)

    def over(self, filed: Filed) -> None:
        """A claim was settled or struck, or was never filed."""
        with self._database.transaction():
            self._database.write("DELETE FROM claims WHERE tab=? AND root=?", filed.tab, filed.root)


def _filed(tab: Hash32, root: bytes, amounts: str, objected: str, *rest: Any) -> Filed:
    read = {int(number): int(amount) for number, amount in json.loads(amounts).items()}
    return Filed(tab, Hash32(root), read, tuple(json.loads(objected)), int(rest[0]), rest[1])
