"""What a reviewer pledged, on stable storage before it is signed: in one hearing it never says two things.

One line per hearing (round of a case): the whole showing, so that after any crash the same commitment is signed again,
and the same is shown. States, whose tiles are opened, lie in a file of their own that is there before the line.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from troth.cases.errors import AlreadyPledged, CaseStorageError
from troth.chain.formats import SIGNED, claim_format, private
from troth.chain.new_files import replacing
from troth.protocol.market import canonical
from troth.protocol.market.proceedings import Reveal
from troth.protocol.tensors import RowArray
from troth.protocol.types import Hash32
from troth.protocol.wire_cases import SHOWN_LIMIT

FORMAT = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS pledged (
    hearing BLOB PRIMARY KEY, case_id BLOB NOT NULL, result BLOB NOT NULL, commitment BLOB NOT NULL,
    reveal BLOB NOT NULL
) WITHOUT ROWID;
"""

_STATES = ".npy"
_NAME = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PledgeRecord:
    """One hearing: ``reveal`` without its tiles, which follow from the states once they are due."""

    case_id: Hash32
    result: Hash32
    commitment: Hash32
    reveal: Reveal


class Record:
    """A folder with one SQLite file (WAL, synchronous FULL) and the states of pending cases; used from one thread."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        try:
            file = private(folder / "pledged.sqlite")
            self._database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            claim_format(self._database, FORMAT, SIGNED)
            self._database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise CaseStorageError("The record of reviews cannot be opened", folder, str(error)) from error

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def find(self, hearing: Hash32) -> PledgeRecord | None:
        """What was pledged in a hearing."""
        query = "SELECT case_id, result, commitment, reveal FROM pledged WHERE hearing=?"
        row = self._database.execute(query, (hearing,)).fetchone()
        if row is None:
            return None
        reveal = canonical.decode(Reveal, row[3], SHOWN_LIMIT)
        return PledgeRecord(Hash32(row[0]), Hash32(row[1]), Hash32(row[2]), reveal)

    def pledge_once(self, hearing: Hash32, pledged: PledgeRecord, states: RowArray | None) -> PledgeRecord:
        """What is pledged in a hearing: this, or what was pledged before. AlreadyPledged if that was about another
        result; CaseStorageError if it could not be written, so that nothing is signed."""
        known = self.find(hearing)
        if known is None:
            known = self._write(hearing, pledged, states)
        if known.result != pledged.result:
            raise AlreadyPledged("In this hearing another result was judged", hearing.hex(), "Abstain from this one.")
        return known

    def _write(self, hearing: Hash32, pledged: PledgeRecord, states: RowArray | None) -> PledgeRecord:
        kept = replace(pledged.reveal, tiles=b"", siblings=())
        try:
            if states is not None:
                self._save(hearing, states)
            values = (hearing, pledged.case_id, pledged.result, pledged.commitment, canonical.encode(kept))
            self._database.execute("INSERT OR IGNORE INTO pledged VALUES (?,?,?,?,?)", values)
        except (sqlite3.Error, OSError) as error:
            raise CaseStorageError(
                "The record of reviews cannot be written", str(error), "Make room on the disk; no restart is needed."
            ) from error
        found = self.find(hearing)
        if found is None:
            raise CaseStorageError("The record of reviews lost a line", hearing.hex(), "Check the disk.")
        return found

    def states(self, hearing: Hash32) -> RowArray | None:
        """The states whose tiles a hearing opens."""
        path = self._path(hearing)
        if not path.is_file():
            return None
        loaded: RowArray = np.load(path, allow_pickle=False)
        return loaded

    def forget(self, hearing: Hash32) -> None:
        """Drop the states of a case that is over; what was pledged stays."""
        self._path(hearing).unlink(missing_ok=True)

    def hearings(self) -> tuple[tuple[Hash32, Hash32], ...]:
        """Hearings with states on disk, with their cases."""
        # By the files, which are few: a look at every block does not read all that was ever pledged.
        query = "SELECT hearing, case_id FROM pledged WHERE hearing=?"
        stems = (path.stem for path in self._folder.glob(f"*{_STATES}"))
        names = [bytes.fromhex(stem) for stem in stems if _NAME.fullmatch(stem)]
        rows = [self._database.execute(query, (name,)).fetchone() for name in names]
        return tuple((Hash32(row[0]), Hash32(row[1])) for row in rows if row is not None)

    def _path(self, hearing: Hash32) -> Path:
        return self._folder / f"{hearing.hex()}{_STATES}"

    def _save(self, hearing: Hash32, states: RowArray) -> None:
        with replacing(self._path(hearing)) as file:
            np.save(file, states, allow_pickle=False)
