"""What others keep that could join a purchase of tickets to the tab that they filled: all of their files are searched.

Members follow the market's events, and these name every tab, whoever paid for it. Such a file is searched in another
way: each of its rows must be on the chain, word for word, where anybody reads it. Then it says nothing of its own.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from troth.committee.directory.market_bonds import RECORDS
from troth.protocol.types import Address
from troth.testnet.anvil import rpc
from troth.testnet.errors import demand

COPIES = 20
"""Tries at a copy of a database during which its process wrote nothing."""
COLUMNS = {
    "source": ["only", "chain", "contract"],
    "blocks": ["number", "hash"],
    "logs": ["block", "log_index", "block_hash", "transaction_hash", "topics", "data", "address"],
}
"""All that a copy of public events may have."""
_Row = tuple[Any, ...]


def holders_of(text: str, places: Iterable[Path]) -> list[Path]:
    """Which files hold an address or a hash, as text or as bytes; copies of the market's events are left out."""
    plain = text.lower().removeprefix("0x")
    wanted, raw = plain.encode(), bytes.fromhex(plain)
    return [
        file
        for file in _files(places)
        if not _is_copy(file) and ((content := file.read_bytes()).find(raw) >= 0 or wanted in content.lower())
    ]


def require_public(places: Iterable[Path], address: str) -> int:
    """How many rows the copies of the market's events in these places have; each must be on the chain at ``address``.

    Raises:
        ActFailed: a copy has a row that the chain has not, or another table or column.
    """
    copies = [file for file in _files(places) if file.name == RECORDS]
    return sum(_require_public(file, address) for file in copies)


def _files(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        yield from (file for file in (place.rglob("*") if place.is_dir() else [place]) if file.is_file())


def _is_copy(file: Path) -> bool:
    """Whether a file is a copy of the market's events, or what SQLite keeps beside one."""
    return file.name in {RECORDS, f"{RECORDS}-wal"}


def _require_public(file: Path, address: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(_copied(file, Path(folder)))
        try:
            columns = _columns(database)
            demand(columns == COLUMNS, f"{file} is a copy of events and nothing else", columns)
            ((_, _, contract),) = database.execute("SELECT * FROM source").fetchall()
            blocks = database.execute("SELECT * FROM blocks").fetchall()
            logs = [_with_address(row, contract) for row in database.execute("SELECT * FROM logs").fetchall()]
        finally:
            database.close()
    published = _published(address)
    private = [row for row in logs if row not in published]
    demand(not private, f"every event in {file} is on the chain", private[:3])
    forged = [number for number, found in blocks if found != _hash_of(address, number)]
    demand(not forged, f"every block in {file} is on the chain", forged[:3])
    return len(logs) + len(blocks)


def _copied(file: Path, folder: Path) -> Path:
    """A copy of a database whose process holds it for itself, taken while nothing was written."""
    names = [name for name in (file.name, f"{file.name}-wal") if file.with_name(name).exists()]
    for _ in range(COPIES):
        before = [_state(file.with_name(name)) for name in names]
        for name in names:
            shutil.copyfile(file.with_name(name), folder / name)
        if before == [_state(file.with_name(name)) for name in names]:
            return folder / file.name
    demand(False, f"{file} can be read between two of its writes", COPIES)
    raise AssertionError


def _state(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size


def _columns(database: sqlite3.Connection) -> dict[str, list[str]]:
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
    return {
        name: [column for (column,) in database.execute("SELECT name FROM pragma_table_info(?)", (name,))]
        for name in names
    }


def _with_address(row: _Row, contract: Address) -> _Row:
    """A stored row, with the address that is left out where it is the one that names the deployment."""
    *rest, address = row
    return (*rest, (address or contract).lower())


def _published(address: str) -> set[_Row]:
    """Every event of the chain, in the form of a stored row."""
    found: Any = rpc(address, "eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest"})
    return {
        (
            *(int(log[name], 16) for name in ("blockNumber", "logIndex")),
            *(_bytes(log[name]) for name in ("blockHash", "transactionHash")),
            b"".join(_bytes(topic) for topic in log["topics"]),
            _bytes(log["data"]),
            str(log["address"]).lower(),
        )
        for log in found
    }


def _hash_of(address: str, number: int) -> bytes | None:
    block: Any = rpc(address, "eth_getBlockByNumber", hex(number), False)
    return None if block is None else _bytes(block["hash"])


def _bytes(digits: str) -> bytes:
    return bytes.fromhex(digits.removeprefix("0x"))
