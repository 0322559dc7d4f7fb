"""The scheduler's file: reads and group commits beside each other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from troth.scheduler.tabs.database import SchedulerDatabase, Statement


async def test_a_read_does_not_wait_for_what_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads run on the event loop: with the disk's flush in their way, every order waited for those before it."""
    database = SchedulerDatabase(tmp_path / "scheduler.sqlite")
    query, insert = "SELECT port FROM tunnel_port ORDER BY port", "INSERT INTO tunnel_port VALUES (?, 'one')"
    await database.commit((insert, (1,)))
    writes, may_go_on, write = threading.Event(), threading.Event(), database._one

    def slowly(statements: Sequence[Statement]) -> Exception | None:
        writes.set()
        assert may_go_on.wait(60)
        return write(statements)

    monkeypatch.setattr(database, "_one", slowly)
    writing = asyncio.create_task(database.commit((insert, (2,))))
    assert await asyncio.to_thread(writes.wait, 60)
    reading = asyncio.create_task(asyncio.to_thread(database.read, query))
    try:
        assert await asyncio.wait_for(asyncio.shield(reading), 10) == [(1,)]
    finally:
        may_go_on.set()
    await writing
    assert database.read(query) == [(1,), (2,)]
    database.truncate()
    assert (tmp_path / "scheduler.sqlite-wal").stat().st_size == 0
    await database.close()
