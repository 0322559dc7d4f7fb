"""The format of an SQLite file, in its `user_version`: a file of another format is refused before it is read."""

from __future__ import annotations

import sqlite3

FINISH = "Finish with that version, or move the file away"
SIGNED = "Finish with that version until nothing is open: whoever starts without this file could sign twice"

SMALL_CACHE = "PRAGMA cache_size=-256;"
"""For files of long-lived processes, which are read by their keys. SQLite would keep 2 MB of each file's pages: a node
has four files, and would grow by megabytes in its first thousands of tasks."""


class OtherFormat(sqlite3.DatabaseError):
    """The file was made by another version of Troth; its text says so, with what to do."""


def claim_format(database: sqlite3.Connection, version: int, remedy: str = FINISH) -> None:
    """Stamp a file that is empty, and take one that has this ``version`` (1 or more); raises OtherFormat.

    Call it before anything else is set or made, so that a file which is refused stays as it is: a file with tables and
    no stamp is another program's.
    """
    # In this order: whoever opens a new file at the same time stamps it before it makes tables.
    ((tables,),) = database.execute("SELECT count(*) FROM sqlite_master").fetchall()
    ((found,),) = database.execute("PRAGMA user_version").fetchall()
    if found == version:
        return
    if found or tables:
        what = f"The file was made by another version of Troth (its format is {found}, this one's is {version})"
        raise OtherFormat(f"{what}. {remedy}")
    database.execute(f"PRAGMA user_version={version}")
