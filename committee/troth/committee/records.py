"""Files of what a member signed (SQLite, WAL)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from troth.chain.formats import SIGNED, OtherFormat, claim_format, private
from troth.committee.errors import MemberConfigurationInvalid


def open_records(path: Path, what: str, version: int, schema: str) -> sqlite3.Connection:
    """A file of what a member signed, made where there is none; MemberConfigurationInvalid for one of another format.

    A signature leaves only after its record is on disk, or a power cut could make this member sign twice.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = sqlite3.connect(private(path), isolation_level=None, check_same_thread=False)
    try:
        claim_format(database, version, SIGNED)
    except OtherFormat as error:
        database.close()
        raise MemberConfigurationInvalid(f"{what} cannot be used", path, str(error)) from error
    database.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;" + schema)
    return database
