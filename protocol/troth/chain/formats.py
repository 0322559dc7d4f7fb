"""What all SQLite files of Troth share: the format in `user_version`, by which a file of another format is refused
before it is read, who may read it, and how several statements are written as one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FINISH = "Finish with that version, or move the file away"
SIGNED = "Finish with that version until nothing is open: whoever starts without this file could sign twice"

SMALL_CACHE = "PRAGMA cache_size=-256;"
"""For files of long-lived processes, which are read by their keys. SQLite would keep 2 MB of each file's pages: a node
has four files, and would grow by megabytes in its first thousands of tasks."""


class OtherFormat(sqlite3.DatabaseError):
    """The file was made by another version of Troth; its text says so, with what to do."""


def private(path: Path) -> Path:
    """The path of a file that nobody but its owner reads, whatever its folder allows; made empty where there is none.

    The journals that SQLite keeps beside a file have the file's own mode. Raises sqlite3.OperationalError, as opening
    it would, where the file cannot be made or is somebody else's.
    """
    try:
        path.touch(mode=0o600)
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise sqlite3.OperationalError(f"unable to open database file: {error}") from error
    return path


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


@contextmanager
def all_or_nothing(database: sqlite3.Connection) -> Iterator[None]:
    """A context: what is written inside is written whole, or nothing of it is. None may stand inside another.

    It takes the file's lock at once, so that what is read inside is still true when it is written. Raises sqlite3.Error
    where the file cannot be written; nothing of it is, then, and the connection takes the next one. The connection
    begins no transaction by itself (``isolation_level=None``).
    """
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    finally:
        # A full disk refuses the COMMIT, too, and an open transaction would refuse every later one. Some errors have
        # ended it already.
        if database.in_transaction:
            database.execute("ROLLBACK")
