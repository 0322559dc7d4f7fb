"""What this node signed, kept on stable storage before the signature leaves: it never signs two different things.

One line per signed position (task, segment, attempt, position) and per signed statement (a trace root, a commitment).
Signing the same again gives the stored signature; signing something else is refused. This is what keeps an honest
node from being slashed for equivocation after a crash, a retry or a restored disk image that is not older.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from troth.node.errors import AlreadySigned, StorageError

SCHEMA = """
CREATE TABLE IF NOT EXISTS signed (
    task_id BLOB NOT NULL, segment INTEGER NOT NULL, attempt INTEGER NOT NULL, subject TEXT NOT NULL,
    position INTEGER NOT NULL, digest BLOB NOT NULL, signature BLOB NOT NULL, signed_at INTEGER NOT NULL,
    PRIMARY KEY (task_id, segment, attempt, subject, position)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS signed_by_age ON signed (signed_at);
"""

ROW, TRACE_ROOT, TRACE_COMMITMENT, VERDICT, SERVED = "row", "trace-root", "trace-commitment", "verdict", "served"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a signature speaks about: a statement of a kind at one place of one task."""

    task_id: bytes
    segment: int
    attempt: int
    kind: str
    position: int = 0


class SigningRecord:
    """An SQLite file in WAL mode with synchronous=FULL; one per operator key. Used from one thread at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            path.chmod(0o600)
            self._database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + SCHEMA)
        except sqlite3.Error as error:
            raise StorageError("the signing record cannot be opened", str(path), str(error)) from error

    def sign_once(self, subject: Subject, digest: bytes, sign: Callable[[], bytes]) -> bytes:
        """The signature over `digest`, made now or kept from before.

        Raises:
            AlreadySigned: another digest was signed for this subject; nothing new is signed.
            StorageError: the record could not be written, so nothing leaves.
        """
        return self.sign_chain(subject, (), digest, sign)

    def sign_chain(
        self, last: Subject, covered: Sequence[tuple[int, bytes]], digest: bytes, sign: Callable[[], bytes]
    ) -> bytes:
        """Like `sign_once`, where the signature also covers the (position, digest) pairs of earlier rows."""
        known = self._known(last, [position for position, _ in covered])
        for position, own in [*covered, (last.position, digest)]:
            if position in known and known[position][0] != own:
                raise AlreadySigned(
                    "this node signed something else there", position, "Start another attempt; do not resend."
                )
        if last.position in known and known[last.position][1]:
            return known[last.position][1]
        signature = sign()
        rows = [(position, own, b"") for position, own in covered if position not in known]
        self._store(last, [*rows, (last.position, digest, signature)])
        return signature

    def _known(self, last: Subject, positions: Sequence[int]) -> dict[int, tuple[bytes, bytes]]:
        lowest = min([last.position, *positions])
        found = self._database.execute(
            "SELECT position, digest, signature FROM signed WHERE task_id=? AND segment=? AND attempt=? AND subject=?"
            " AND position BETWEEN ? AND ?",
            (last.task_id, last.segment, last.attempt, last.kind, lowest, last.position),
        )
        return {position: (digest, signature) for position, digest, signature in found}

    def _store(self, last: Subject, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        prefix = (last.task_id, last.segment, last.attempt, last.kind)
        values = [(*prefix, position, digest, signature, int(time.time())) for position, digest, signature in rows]
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany("INSERT OR REPLACE INTO signed VALUES (?,?,?,?,?,?,?,?)", values)
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise StorageError("the signing record cannot be written", str(error), "Free the disk; restart.") from error

    def forget_before(self, moment: int) -> int:
        """Drop lines older than a Unix time, for tasks that were settled long ago; returns how many."""
        return self._database.execute("DELETE FROM signed WHERE signed_at < ?", (moment,)).rowcount

    def close(self) -> None:
        """Close the file."""
        self._database.close()
