"""The journal: nothing that was ordered is forgotten, and nothing is found by accident."""

from __future__ import annotations

import os
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
