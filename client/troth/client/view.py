"""The client's view of the chain: one file that no other process holds.

A follower's file belongs to one process at a time: it folds into memory what it appended itself, and would miss what
another process appended in between. So each command takes the first file that nobody holds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from troth.chain.adapter import Chain
from troth.client.home import Home

FILES = 8
"""Commands that can keep their view at the same time; any further one reads the chain anew, into memory."""


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


@contextmanager
def free_file(home: Home, chain: Chain) -> Iterator[Path | None]:
    """A follower's file that nobody else holds, for as long as the block runs; None where all are held."""
    for number in range(FILES):
        path = home.chain_view(chain.chain_id, chain.contract, number)
        with exclusive(path) as held:
            if held:
                yield path
                return
    yield None
