"""Each SQLite file has a format: its own is taken again, another version's is refused in words and left as it is."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from troth.audit.watching.findings import ShownFindings
from troth.cases.journal import CaseJournal
from troth.cases.record import Record
from troth.chain.formats import all_or_nothing, private
from troth.chain.store import EventStore
from troth.client.gateway.ledger import CompletionLedger
from troth.client.tabs.store import TabStore
from troth.client.tickets.store import TicketStore
from troth.committee.directory.store import MemberStore
from troth.committee.rating.epochs import EpochJournal
from troth.committee.rating.store import EpochStore
from troth.committee.tickets.keys import TicketKeyStore
from troth.explorer.opening import SqliteDatabase
from troth.network.journal import CreationJournal
from troth.node.earning.database import NodeDatabase
from troth.node.judging.margin_pool import MarginPool
from troth.node.orders.traces import TraceStore
from troth.protocol.typed_data import Domain
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
    "tickets": ("tickets.sqlite3", lambda path: TicketStore(path, Domain(1, CONTRACT))),
    "epochs": ("epochs.sqlite", EpochStore),
    "signed epochs": ("journal.sqlite", EpochJournal),
    "keys of tickets": ("tickets.sqlite", TicketKeyStore),
    "a creation": ("creation.sqlite", CreationJournal),
    "the explorer's index": (
        "explorer.sqlite",
        lambda path: SqliteDatabase.to_write(path, 2, "CREATE TABLE IF NOT EXISTS some (thing)"),
    ),
}


async def closed(store: Any) -> None:
    close = getattr(store, "close", None) or getattr(store, "_index", None) or store._database
    done = close() if callable(close) else close.close()
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


def as_written(path: Path) -> None:
    """The file with a journal that this version does not use."""
    database = sqlite3.connect(path, isolation_level=None)
    assert database.execute("PRAGMA journal_mode=TRUNCATE").fetchone() == ("truncate",)
    database.execute("VACUUM")
    database.close()


def contents(folder: Path) -> dict[str, bytes]:
    """All that the folder's files hold; those that SQLite makes beside them while one is open hold nothing."""
    return {one.name: one.read_bytes() for one in folder.rglob("*") if one.is_file() and one.stat().st_size}


def test_every_file_of_a_format_is_tried() -> None:
    """Each module that claims a format has one kind of file in FILES; two only help others to claim one."""
    root = Path(__file__).resolve().parents[2]
    claiming = {
        path
        for path in root.glob("*/troth/**/*.py")
        if re.search(r"claim_format\(|open_records\(", path.read_text())
        and path.name not in {"formats.py", "records.py"}
    }
    assert len(claiming) == len(FILES), sorted(claiming)


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
    # As a version that needs other settings of SQLite may have left it.
    as_written(tmp_path / name)
    before = contents(tmp_path)
    with pytest.raises(Exception, match="made by another version of Troth") as caught:
        make(tmp_path / name)
    assert re.search("Finish with that version|[mM]ove the file away", str(caught.value))
    assert "disk" not in str(caught.value)
    assert caught.value.what  # type: ignore[attr-defined]
    assert caught.value.remedy  # type: ignore[attr-defined]
    assert contents(tmp_path) == before
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


PUBLIC = {"events", "findings", "the explorer's index"}
"""Files that hold what the chain and schedulers tell everybody: other users' programs may read them."""


@pytest.mark.parametrize("kind", sorted(FILES.keys() - PUBLIC))
def test_no_other_user_reads_a_file_whatever_the_folder_allows(kind: str, tmp_path: Path) -> None:
    """Prompts, vouchers, secrets of orders; also in the journals that SQLite keeps beside a file."""
    name, make = FILES[kind]
    tmp_path.chmod(0o755)
    store = make(tmp_path / name)
    modes = {one.name: oct(stat.S_IMODE(one.stat().st_mode)) for one in tmp_path.rglob("*") if one.is_file()}
    asyncio.run(closed(store))
    assert modes
    assert set(modes.values()) == {"0o600"}, modes


def write(database: sqlite3.Connection, *statements: str, broken_off: bool = False) -> None:
    with all_or_nothing(database):
        for statement in statements:
            database.execute(statement)
        if broken_off:
            raise InterruptedError


def write_within(database: sqlite3.Connection) -> None:
    with all_or_nothing(database):
        database.execute("INSERT INTO some VALUES (3)")
        write(database)


def test_what_a_full_disk_or_an_error_interrupts_is_not_written_and_the_next_one_is(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "file.sqlite", isolation_level=None)
    write(database, "CREATE TABLE some (thing BLOB)")
    with pytest.raises(InterruptedError):
        write(database, "INSERT INTO some VALUES (1)", broken_off=True)
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count={pages + 1}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        write(database, "INSERT INTO some VALUES (2)", "INSERT INTO some VALUES (zeroblob(100000))")
    with pytest.raises(sqlite3.OperationalError, match="within a transaction"):
        write_within(database)
    assert database.execute("SELECT count(*) FROM some").fetchone() == (0,)
    write(database, "INSERT INTO some VALUES (4)")
    assert database.execute("SELECT thing FROM some").fetchall() == [(4,)]
    database.close()


def test_a_file_that_cannot_be_made_private_is_refused_as_one_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="unable to open database file"):
        private(tmp_path / "nowhere" / "file.sqlite")
