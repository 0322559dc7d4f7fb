"""What the play of tickets finds in others' files: a copy of public events is believed only where it is one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from conftest import Anvil, key_number

from troth.chain.adapter import Chain
from troth.chain.deployment import committee_creation, submit
from troth.chain.store import EventStore
from troth.committee.directory.market_bonds import RECORDS
from troth.demo.linking import holders_of, require_public
from troth.protocol.committee import CommitteeMember
from troth.protocol.types import Hash32
from troth.testnet.errors import ActFailed

pytestmark = pytest.mark.chain

NAMED = key_number(801).address


@pytest.fixture
async def folder(anvil: Anvil, tmp_path: Path) -> Path:
    """A member's folder: its copy of a contract's events, still held by the process that wrote them."""
    member = CommitteeMember(NAMED, Hash32(b"\1" * 32), "https://192.0.2.1:8543")
    receipt = await submit(anvil.url, committee_creation([member]), anvil.keys[7])
    assert receipt.created is not None
    async with await Chain.connect(anvil.url, receipt.created) as chain:
        store = EventStore(tmp_path / RECORDS, chain.chain_id, chain.contract)
        block = await chain.block(receipt.block)
        assert block is not None
        logs = await chain.logs(receipt.block, receipt.block)
        assert logs
        store.append(receipt.block, block.hash, logs)
    return tmp_path


def test_a_copy_of_public_events_is_read_while_its_process_holds_it(folder: Path, anvil: Anvil) -> None:
    assert NAMED.lower().removeprefix("0x") in (folder / f"{RECORDS}-wal").read_bytes().hex()
    assert holders_of(NAMED, [folder]) == []
    assert require_public([folder], anvil.url) == 2


@pytest.mark.parametrize(
    "content", [NAMED.encode(), NAMED.removeprefix("0x").upper().encode(), bytes.fromhex(NAMED[2:])]
)
def test_a_name_in_any_other_file_is_found(folder: Path, content: bytes) -> None:
    file = folder / "keys" / "log.txt"
    file.parent.mkdir()
    file.write_bytes(b"before " + content + b" after")
    assert holders_of(NAMED, [folder]) == holders_of(NAMED, [file]) == [file]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE logs SET data = CAST(data || x'00' AS BLOB)", "every event"),
        ("INSERT INTO logs SELECT block, log_index + 9, block_hash, transaction_hash, topics, data, address FROM logs",
         "every event"),
        ("UPDATE blocks SET hash = zeroblob(32)", "every block"),
        ("CREATE TABLE purchases (wallet TEXT, tab TEXT)", "nothing else"),
        ("ALTER TABLE logs ADD COLUMN wallet TEXT", "nothing else"),
    ],
)  # fmt: skip
def test_a_copy_that_says_more_than_the_chain_is_refused(folder: Path, anvil: Anvil, change: str, what: str) -> None:
    other = folder / "other"
    other.mkdir()
    for name in (RECORDS, f"{RECORDS}-wal"):
        (other / name).write_bytes((folder / name).read_bytes())
    with sqlite3.connect(other / RECORDS) as database:
        database.execute(change)
    database.close()
    with pytest.raises(ActFailed, match=what):
        require_public([other], anvil.url)
