"""The journal: nothing that was ordered is forgotten, and nothing is found by accident."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.client_stage import CLASS, DOMAIN, SCHEDULER, base_state, record, signed_order

from troth.client.errors import ReceiptNotFound, ReceiptsUnreadable
from troth.client.history import Entry
from troth.client.receipts import Receipts
from troth.client.standing import standing_of
from troth.protocol.settlement import Outcome
from troth.protocol.types import Address

CRASH = """
import os, sys
from pathlib import Path
sys.path[:0] = {path!r}
from support.client_stage import DOMAIN, signed_order
from troth.client.receipts import Receipts
receipts = Receipts(Path({file!r}), DOMAIN)
signed = signed_order()
receipts.ordered(signed)
receipts.answered(signed.task_id, [1, 2])
print("0x" + signed.task_id.hex(), flush=True)
os.kill(os.getpid(), 9)
"""


def journal(folder: Path) -> Receipts:
    return Receipts(folder / "receipts.sqlite3", DOMAIN)


def test_an_order_survives_a_process_that_is_killed_right_after(tmp_path: Path) -> None:
    file = str(tmp_path / "receipts.sqlite3")
    code = CRASH.format(file=file, path=[str(Path(__file__).parents[1])])
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == -9, ended.stderr
    found = journal(tmp_path).all()
    assert [one.task_id for one in found] == [ended.stdout.strip()]
    assert found[0].tokens == (1, 2)


def test_a_receipt_holds_what_is_needed_to_ask_again(tmp_path: Path) -> None:
    signed = signed_order()
    receipts = journal(tmp_path)
    receipts.ordered(signed)
    (kept,) = receipts.all()
    assert (kept.identifier, kept.salt, kept.fee) == (signed.task_id, signed.salt, signed.fee)
    assert (kept.scheduler, kept.execution_class) == (SCHEDULER.operator, CLASS)
    assert kept.prompt_length == len(signed.request.prompt_tokens)
    assert kept.deadline == signed.order.deadline


def test_only_the_owner_reads_the_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        journal(tmp_path / "new").ordered(signed_order())
    finally:
        os.umask(before)
    for file in (tmp_path / "new").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_task_is_found_by_its_beginning_and_by_no_pattern(tmp_path: Path) -> None:
    receipts = journal(tmp_path)
    one, two = signed_order(), signed_order()
    for signed in (one, two):
        receipts.ordered(signed)
    name = "0x" + one.task_id.hex()
    for text in (name, name[:12], name.upper().replace("0X", "0x"), f" {name} "):
        assert receipts.find(text).task_id == name
    for text in ("0x%", "0x_", "%", "", "0x", "0x" + "_" * 64, one.task_id.hex(), name + "0", "0x' OR 1=1 --"):
        with pytest.raises(ReceiptNotFound, match="no such task"):
            receipts.find(text)


def test_an_ambiguous_beginning_is_not_guessed(tmp_path: Path) -> None:
    receipts = journal(tmp_path)
    first = signed_order()
    receipts.ordered(first)
    receipts.ordered(replace(first, task_id=bytes([*first.task_id[:-1], first.task_id[-1] ^ 1])))  # type: ignore[arg-type]
    with pytest.raises(ReceiptNotFound, match="Several"):
        receipts.find("0x" + first.task_id.hex()[:20])


def test_receipts_of_another_contract_stay_apart(tmp_path: Path) -> None:
    journal(tmp_path).ordered(signed_order())
    other = Receipts(tmp_path / "receipts.sqlite3", replace(DOMAIN, chain_id=1))
    assert other.all() == []
    assert len(journal(tmp_path).all()) == 1


def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "receipts.sqlite3"
    file.write_bytes(b"holiday pictures" * 100)
    with pytest.raises(ReceiptsUnreadable, match=r"receipts\.sqlite3"):
        journal(tmp_path)
    assert file.read_bytes() == b"holiday pictures" * 100


@pytest.mark.parametrize(
    ("tokens", "outcome", "state", "paid", "held"),
    [
        (None, None, "running", 0, 1),
        ([1], None, "running", 0, 1),
        ([1], Outcome.ACCEPTED, "accepted", 1, 0),
        ([1], Outcome.REJECTED, "rejected", 0, 0),
        (None, Outcome.EXPIRED, "expired", 0, 0),
    ],
)
def test_state_and_money_are_the_chains(
    tokens: list[int] | None, outcome: Outcome | None, state: str, paid: int, held: int, tmp_path: Path
) -> None:
    signed = signed_order()
    receipts = journal(tmp_path)
    receipts.ordered(signed)
    receipts.answered(signed.task_id, [1])
    receipts.failed(signed.task_id, "the stream broke off")
    chain = base_state()
    chain = replace(chain, tasks=chain.tasks.with_item(signed.task_id, record(signed, tokens, outcome)))
    entry = Entry(receipts.all()[0], standing_of(chain, signed.task_id))
    assert (entry.state, entry.paid, entry.held) == (state, paid * signed.fee, held * signed.fee)
    assert entry.answer_matches == (None if tokens is None else True)
    assert entry.to_json()["failure"] == "the stream broke off"


def test_an_incomplete_answer_is_not_called_the_committed_one(tmp_path: Path) -> None:
    signed = signed_order()
    receipts = journal(tmp_path)
    receipts.ordered(signed)
    receipts.answered(signed.task_id, [1])
    chain = base_state()
    chain = replace(chain, tasks=chain.tasks.with_item(signed.task_id, record(signed, [1, 2], Outcome.ACCEPTED)))
    entry = Entry(receipts.all()[0], standing_of(chain, signed.task_id))
    assert entry.answer_matches is False
    assert "--answer" in entry.lines()[-1]


def test_a_task_that_was_never_opened_lapses_with_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receipts = journal(tmp_path)
    signed = signed_order()
    receipts.ordered(signed)
    entry = Entry(receipts.all()[0], None)
    assert (entry.state, entry.paid, entry.held) == ("not opened", 0, 0)
    later = time.time() + 3600
    monkeypatch.setattr("troth.client.history.time.time", lambda: later)
    assert entry.state == "lapsed"


OLD_SCHEMA = """
CREATE TABLE receipts (
    task_id TEXT PRIMARY KEY, chain_id TEXT NOT NULL, contract TEXT NOT NULL,
    created INTEGER NOT NULL, fee TEXT NOT NULL, salt TEXT NOT NULL,
    order_body TEXT NOT NULL, tokens TEXT NOT NULL DEFAULT '[]', transactions TEXT NOT NULL DEFAULT '{}',
    outcome TEXT, paid TEXT, failure TEXT
) STRICT
"""
"""As versions before direct mode made it."""
OLD_COLUMNS = (
    "task_id, chain_id, contract, created, fee, salt, order_body, tokens, transactions, outcome, paid, failure"
)
NODE = Address("0x" + "ab" * 20)


def old_file(folder: Path) -> str:
    """A file of an earlier version with one receipt, whose name is returned."""
    made = journal(folder / "made")
    signed = signed_order()
    made.ordered(signed)
    made.answered(signed.task_id, [4, 5])
    made.decided(signed.task_id, "accepted", 7)
    made.close()
    old = sqlite3.connect(folder / "receipts.sqlite3")
    old.execute(OLD_SCHEMA)
    old.execute("ATTACH DATABASE ? AS made", (str(folder / "made" / "receipts.sqlite3"),))
    old.execute(f"INSERT INTO receipts SELECT {OLD_COLUMNS} FROM made.receipts")
    old.commit()
    old.close()
    return "0x" + signed.task_id.hex()


def test_an_earlier_version_s_receipts_stay_and_new_ones_name_the_node(tmp_path: Path) -> None:
    name = old_file(tmp_path)
    receipts = journal(tmp_path)
    (kept,) = receipts.all()
    assert (kept.task_id, kept.tokens, kept.outcome, kept.paid, kept.served_by) == (name, (4, 5), "accepted", 7, None)
    signed = signed_order()
    receipts.ordered(signed)
    receipts.served(signed.task_id, NODE, b"\x05" * 65)
    receipts.close()
    again = journal(tmp_path)
    found = again.find("0x" + signed.task_id.hex())
    assert (found.served_by, found.served_signature) == (NODE, "0x" + "05" * 65)
    assert len(again.all()) == 2
    assert f"{NODE}, which signed" in "\n".join(Entry(found, None).lines())
    assert Entry(found, None).to_json()["served_by"] == NODE


def test_an_earlier_version_can_still_write_to_the_file(tmp_path: Path) -> None:
    old_file(tmp_path)
    journal(tmp_path).close()
    earlier = sqlite3.connect(tmp_path / "receipts.sqlite3")
    earlier.execute(
        "INSERT INTO receipts (task_id, chain_id, contract, created, fee, salt, order_body) "
        "SELECT '0x01', chain_id, contract, created, fee, salt, order_body FROM receipts"
    )
    assert len(earlier.execute(f"SELECT {OLD_COLUMNS} FROM receipts").fetchall()) == 2
    earlier.commit()
    earlier.close()
    assert len(journal(tmp_path).all()) == 2


def test_processes_that_open_an_earlier_file_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    old_file(tmp_path)
    code = (
        "import sys; sys.path[:0] = [sys.argv[1]]\n"
        "from pathlib import Path\n"
        "from support.client_stage import DOMAIN\n"
        "from troth.client.receipts import Receipts\n"
        "sys.stdin.readline()\n"
        "print(len(Receipts(Path(sys.argv[2]), DOMAIN).all()))\n"
    )
    arguments = [sys.executable, "-c", code, str(Path(__file__).parents[1]), str(tmp_path / "receipts.sqlite3")]
    running = [subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=120)[0].strip() for process in running] == ["1"] * 3
