"""What a member must not forget: what it signed, the last lists, the descriptors that it took, and the machines it
vouches for (SQLite, WAL)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from troth.committee.errors import SignedOther
from troth.committee.records import open_records

KEPT_LISTS = 8
FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS signed (valid_after INTEGER PRIMARY KEY, digest BLOB NOT NULL, proposal BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS lists (valid_after INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS descriptors (
    kind TEXT NOT NULL, name BLOB NOT NULL, issued INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS vouched (
    tls_key_hash BLOB NOT NULL, seal_key BLOB NOT NULL, operator TEXT NOT NULL, kind TEXT NOT NULL,
    measurement TEXT NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (tls_key_hash, seal_key, operator, kind)
) WITHOUT ROWID;
"""


class VouchedRow(NamedTuple):
    """A machine that was vouched for: its keys, who runs it, what was found, and until when (Unix seconds)."""

    tls_key_hash: bytes
    seal_key: bytes
    operator: str
    kind: str
    measurement: str
    until: int


class MemberStore:
    """One member's file."""

    def __init__(self, path: Path) -> None:
        self._database = open_records(path, "The member's records", FORMAT, _SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def claim(self, valid_after: int, digest: bytes, proposal: bytes) -> None:
        """Note that this list gets our signature for its time, once and never for an earlier time.

        Raises SignedOther, and then nothing may be signed.
        """
        newest = self.newest_signed()
        if valid_after < newest:
            raise SignedOther(f"A list for {newest} is signed already", valid_after, "Set the clocks.")
        self._database.execute("INSERT OR IGNORE INTO signed VALUES (?, ?, ?)", (valid_after, digest, proposal))
        row = self._database.execute("SELECT digest FROM signed WHERE valid_after = ?", (valid_after,)).fetchone()
        if row[0] != digest:
            raise SignedOther(
                f"Another list for {valid_after} has this member's signature", row[0].hex(), "Wait for the next slot."
            )
        self._database.execute("DELETE FROM signed WHERE valid_after < ?", (valid_after,))

    def claimed(self, valid_after: int) -> bytes | None:
        """The proposal that was signed for a time."""
        row = self._database.execute("SELECT proposal FROM signed WHERE valid_after = ?", (valid_after,)).fetchone()
        return None if row is None else bytes(row[0])

    def newest_signed(self) -> int:
        """The latest time that was signed for, or -1."""
        return int(self._database.execute("SELECT COALESCE(MAX(valid_after), -1) FROM signed").fetchone()[0])

    def keep_list(self, valid_after: int, data: bytes) -> None:
        """Keep a signed list, and the few before it."""
        self._database.execute("INSERT OR REPLACE INTO lists VALUES (?, ?)", (valid_after, data))
        newest = "SELECT valid_after FROM lists ORDER BY valid_after DESC LIMIT ?"
        self._database.execute(f"DELETE FROM lists WHERE valid_after NOT IN ({newest})", (KEPT_LISTS,))  # noqa: S608

    def newest_list(self) -> bytes | None:
        """The last signed list."""
        row = self._database.execute("SELECT data FROM lists ORDER BY valid_after DESC LIMIT 1").fetchone()
        return None if row is None else bytes(row[0])

    def put(self, kind: str, name: bytes, issued: int, data: bytes) -> None:
        """Keep a descriptor in place of an older one of the same name."""
        self._database.execute(
            "INSERT INTO descriptors VALUES (?, ?, ?, ?) ON CONFLICT (kind, name) DO UPDATE "
            "SET issued = excluded.issued, data = excluded.data WHERE excluded.issued > issued",
            (kind, name, issued, data),
        )

    def drop_before(self, issued: int) -> None:
        """Forget descriptors that were issued before this time."""
        self._database.execute("DELETE FROM descriptors WHERE issued < ?", (issued,))

    def descriptors(self, kind: str) -> Iterator[bytes]:
        """All descriptors of a kind."""
        for (data,) in self._database.execute("SELECT data FROM descriptors WHERE kind = ?", (kind,)).fetchall():
            yield bytes(data)

    def vouch(self, row: VouchedRow, now: int) -> None:
        """Keep what was found of a machine, and forget what has ended."""
        self._database.execute("INSERT OR REPLACE INTO vouched VALUES (?, ?, ?, ?, ?, ?)", row)
        self._database.execute("DELETE FROM vouched WHERE until <= ?", (now,))

    def vouched(self) -> list[VouchedRow]:
        """All machines that are kept."""
        return [VouchedRow(*row) for row in self._database.execute("SELECT * FROM vouched").fetchall()]
