"""The files of a process that lives long keep few pages in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from troth.chain.store import EventStore
from troth.node.earning.database import NodeDatabase
from troth.node.judging.margin_pool import MarginPool
from troth.node.orders.traces import TraceStore
from troth.protocol.types import to_address

CONTRACT = to_address("0x5FbDB2315678afecb367f032d93F642f64180aa3")
OPENED: dict[str, Callable[[Path], object]] = {
    "records": lambda folder: NodeDatabase(folder / "node.sqlite"),
    "margins": lambda folder: MarginPool(folder / "margins.sqlite"),
    "traces": TraceStore,
    "events": lambda folder: EventStore(folder / "events.sqlite", 1, CONTRACT),
}


@pytest.mark.parametrize("name", OPENED)
def test_a_file_keeps_a_quarter_of_a_megabyte_of_pages(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, made = sqlite3.connect, list[sqlite3.Connection]()

    def noted(*given: object, **named: object) -> sqlite3.Connection:
        made.append(connect(*given, **named))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    opened = OPENED[name](tmp_path)
    assert opened is not None
    assert [connection.execute("PRAGMA cache_size").fetchone() for connection in made] == [(-256,)]
