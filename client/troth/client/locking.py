"""Files that one process at a time may write: a lock that the system drops when its process dies."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path) -> Iterator[bool]:
    """Whether this process has the lock of `path` for the block; never waits. The lock is a file beside it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite's own lock works on every platform.
    lock = sqlite3.connect(path.with_suffix(".lock"), timeout=0, isolation_level=None)
    try:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            yield False
        else:
            yield True
    finally:
        lock.close()
