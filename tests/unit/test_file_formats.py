"""Each SQLite file has a format: its own is taken again, another version's is refused in words and left as it is."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from troth.audit.findings import ShownFindings
from troth.cases.journal import CaseJournal
from troth.cases.record import Record
from troth.chain.store import EventStore
from troth.client.gateway.ledger import CompletionLedger
from troth.client.tabs.store import TabStore
from troth.committee.store import MemberStore
from troth.node.earning.database import NodeDatabase
from troth.node.margin_pool import MarginPool
from troth.node.traces import TraceStore
from troth.protocol.types import Address
from troth.scheduler.tabs.database import SchedulerDatabase

CONTRACT = Address("0x" + "11" * 20)


def node_records(path: Path) -> NodeDatabase:
    found = NodeDatabase(path)
    found.create("CREATE TABLE IF NOT EXISTS some (thing INTEGER PRIMARY KEY);")
    return found


FILES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "events": ("events.sqlite", lambda path: EventStore(path, 1, CONTRACT)),
    "node records": ("market.sqlite", node_records),
    "margins": ("margins.sqlite", MarginPool),
    "traces": ("index.sqlite", lambda path: TraceStore(path.parent)),
    "scheduler records": ("market.sqlite", SchedulerDatabase),
    "reviews": ("pledged.sqlite", lambda path: Record(path.parent)),
    "cases": ("cases.sqlite", CaseJournal),
    "findings": ("findings.sqlite", ShownFindings),
    "member": ("member.sqlite", MemberStore),
    "completions": ("gateway.sqlite3", CompletionLedger),
    "tabs": ("tabs.sqlite3", TabStore),
}


async def closed(store: Any) -> None:
    close = getattr(store, "close", None)
    done = close() if close is not None else store._index.close()
    if asyncio.iscoroutine(done):
        await done


def stamp(path: Path, version: int | None = None) -> int:
    """The format that a file says it has; set to ``version`` before."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        if version is not None:
            database.execute(f"PRAGMA user_version={version}")
        ((found,),) = database.execute("PRAGMA user_version").fetchall()
        return int(found)
    finally:
        database.close()


@pytest.mark.parametrize("kind", FILES)
async def test_a_file_is_stamped_and_taken_again(tmp_path: Path, kind: str) -> None:
    name, make = FILES[kind]
    for _ in range(2):
        await closed(make(tmp_path / name))
        assert stamp(tmp_path / name) >= 1


@pytest.mark.parametrize("other", [0, 77])
@pytest.mark.parametrize("kind", FILES)
async def test_a_file_of_another_version_is_refused_in_words_and_left_alone(
    tmp_path: Path, kind: str, other: int
) -> None:
    name, make = FILES[kind]
    await closed(make(tmp_path / name))
    own = stamp(tmp_path / name)
    stamp(tmp_path / name, other)
    with pytest.raises(Exception, match="made by another version of Troth") as caught:
        make(tmp_path / name)
    assert "Finish with that version" in str(caught.value)
    assert caught.value.what  # type: ignore[attr-defined]
    assert caught.value.remedy  # type: ignore[attr-defined]
    assert stamp(tmp_path / name) == other
    # Whoever puts the right program back goes on.
    stamp(tmp_path / name, own)
    await closed(make(tmp_path / name))


async def test_the_schedulers_file_of_before_is_refused(tmp_path: Path) -> None:
    """Its column of open orders had another name, and nothing in the file said so."""
    path = tmp_path / "market.sqlite"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE orders (order_id BLOB PRIMARY KEY, open INTEGER NOT NULL)")
    database.execute("PRAGMA user_version=1")
    database.commit()
    database.close()
    with pytest.raises(Exception, match="its format is 1, this one's is 2"):
        SchedulerDatabase(path)
