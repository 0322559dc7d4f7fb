"""What a driver knows of its cases, on stable storage before it acts: evidence, commitments, showings.

SQLite in WAL mode with synchronous FULL. The chain decides what has happened; the journal holds what the chain does
not: why a case is to be opened, and what parties have handed over for it. So a driver that is killed anywhere goes on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from troth.cases import evidence as files
from troth.cases.errors import CaseStorageError
from troth.cases.evidence import Evidence
from troth.chain.formats import claim_format, private
from troth.protocol.market import canonical
from troth.protocol.market.messages import Signed
from troth.protocol.market.proceedings import NodeReveal, Reveal
from troth.protocol.market.signed import ReviewCommitment
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_cases import SHOWN_LIMIT

FORMAT = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS cases (
    case_id BLOB PRIMARY KEY, evidence BLOB, folder TEXT NOT NULL, wanted TEXT NOT NULL, ended TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pledges (
    case_id BLOB NOT NULL, round INTEGER NOT NULL, party TEXT NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (case_id, round, party)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS showings (
    case_id BLOB NOT NULL, round INTEGER NOT NULL, party TEXT NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (case_id, round, party)
) WITHOUT ROWID;
"""
_NODE = "node"
_CASES = "SELECT case_id, evidence, folder, wanted, ended FROM cases"


@dataclass(frozen=True, slots=True)
class CarriedCase:
    """A case that is carried. ``wanted``: how it is to be opened where it does not stand (``opening.WantedCase``);
    empty: it is carried as it stands. ``evidence`` None: only what the chain has."""

    case_id: Hash32
    evidence: Evidence | None
    folder: Path | None
    wanted: str
    ended: str


class CaseJournal:
    """One file for one driver; used from one thread."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._database = sqlite3.connect(private(path), isolation_level=None, check_same_thread=False)
            claim_format(self._database, FORMAT)
            self._database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise CaseStorageError("The journal of cases cannot be opened", path, str(error)) from error

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._database
        except sqlite3.Error as error:
            raise CaseStorageError(
                "The journal of cases cannot be written", str(error), "Make room on the disk; no restart is needed."
            ) from error

    # ---- cases

    def follow(
        self, case_id: Hash32, evidence: Evidence | None = None, folder: Path | None = None, wanted: str = ""
    ) -> None:
        """Carry a case from now on; what is known already is kept. One that ended goes on if there is something new."""
        data = None if evidence is None else files.encode(evidence)
        place = "" if folder is None else str(folder)
        with self._guarded() as database:
            database.execute(
                "INSERT INTO cases VALUES (?,?,?,?,'') ON CONFLICT (case_id) DO UPDATE SET"
                " evidence=coalesce(excluded.evidence, evidence),"
                " folder=CASE excluded.folder WHEN '' THEN folder ELSE excluded.folder END,"
                " wanted=CASE excluded.wanted WHEN '' THEN wanted ELSE excluded.wanted END,"
                " ended=CASE WHEN excluded.wanted='' AND excluded.evidence IS NULL THEN ended ELSE '' END",
                (case_id, data, place, wanted),
            )

    def end(self, case_id: Hash32, how: str) -> None:
        """It is over; nothing is done for it any more, and the prompt in its evidence is kept no longer."""
        with self._guarded() as database:
            database.execute("UPDATE cases SET ended=?, wanted='', evidence=NULL WHERE case_id=?", (how, case_id))

    def case(self, case_id: Hash32) -> CarriedCase | None:
        """One case."""
        with self._guarded() as database:
            row = database.execute(f"{_CASES} WHERE case_id=?", (case_id,)).fetchone()
        return None if row is None else _followed(row)

    def cases(self) -> tuple[Hash32, ...]:
        """All cases that go on."""
        with self._guarded() as database:
            return tuple(Hash32(case) for (case,) in database.execute("SELECT case_id FROM cases WHERE ended=''"))

    # ---- what parties handed over

    def keep_pledge(self, case_id: Hash32, round_: int, reviewer: Address, pledge: Signed[ReviewCommitment]) -> None:
        """A reviewer's signed commitment, after its checks."""
        self._keep("pledges", case_id, round_, reviewer, canonical.encode(pledge))

    def pledges(self, case_id: Hash32, round_: int) -> dict[Address, Signed[ReviewCommitment]]:
        """All signed commitments of a round."""
        kind = Signed[ReviewCommitment]
        return {
            party: canonical.decode(kind, data, SHOWN_LIMIT) for party, data in self._all("pledges", case_id, round_)
        }

    def keep_reveal(self, case_id: Hash32, round_: int, reviewer: Address, reveal: Reveal) -> None:
        """What a reviewer shows, after its checks."""
        self._keep("showings", case_id, round_, reviewer, canonical.encode(reveal))

    def keep_node(self, case_id: Hash32, round_: int, reveal: NodeReveal) -> None:
        """What the node shows, after its checks."""
        self._keep("showings", case_id, round_, _NODE, canonical.encode(reveal))

    def reveals(self, case_id: Hash32, round_: int) -> dict[Address, Reveal]:
        """What reviewers show in a round."""
        found = self._all("showings", case_id, round_)
        return {Address(party): canonical.decode(Reveal, data, SHOWN_LIMIT) for party, data in found if party != _NODE}

    def node(self, case_id: Hash32, round_: int) -> NodeReveal | None:
        """What the node shows in a round."""
        found = dict(self._all("showings", case_id, round_))
        return canonical.decode(NodeReveal, found[Address(_NODE)], SHOWN_LIMIT) if _NODE in found else None

    def _keep(self, table: str, case_id: Hash32, round_: int, party: str, content: bytes) -> None:
        # What was checked last counts: after a reorganisation other tiles may be due.
        query = f"INSERT OR REPLACE INTO {table} VALUES (?,?,?,?)"  # noqa: S608 - a name of this module
        with self._guarded() as database:
            database.execute(query, (case_id, round_, party, content))

    def _all(self, table: str, case_id: Hash32, round_: int) -> list[tuple[Address, bytes]]:
        query = f"SELECT party, content FROM {table} WHERE case_id=? AND round=?"  # noqa: S608 - a name of this module
        with self._guarded() as database:
            return list(database.execute(query, (case_id, round_)))


def _followed(row: tuple[bytes, bytes | None, str, str, str]) -> CarriedCase:
    case, data, place, wanted, ended = row
    found = None if data is None else files.decode(data)
    return CarriedCase(Hash32(case), found, Path(place) if place else None, wanted, ended)
