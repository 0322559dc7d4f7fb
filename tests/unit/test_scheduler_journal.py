"""The journal keeps every step in order, and the story reads them back."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from troth.scheduler.journal import Journal
from troth.scheduler.records import (
    Aborted,
    Aborting,
    Committing,
    Failed,
    Generated,
    Generating,
    Opened,
    Opening,
    Received,
    Record,
    SegmentPosts,
    Settled,
)
from troth.scheduler.story import Story

TASK = b"\x01" * 32
RECEIVED = Received(
    execution_class=b"\x02" * 32,
    request_hash=b"\x03" * 32,
    scheduler="0x5FbDB2315678afecb367f032d93F642f64180aa3",
    max_fee=str(2**96 - 1),
    deadline=2**62,
    reference_block=7,
    nonce=1,
    signature=b"\x04" * 65,
    client="0x5FbDB2315678afecb367f032d93F642f64180aa3",
    fee="12",
    request=bytes(range(256)),
    salt=b"\x05" * 32,
    ends=(15, 30),
    alphas=(b"a" * 32, b"b" * 32),
    betas=(b"c" * 32, b"d" * 32),
    proofs=(b"e" * 81, b"f" * 81),
    parties=(("x", "y"), ("z",)),
)
STEPS: list[Record] = [
    RECEIVED,
    Opening(),
    Generating(0, (0, 1)),
    Opened(b"\x06" * 32, 9, 21_000),
    Generating(1, (1, 1)),
    Generated(1, (1, 1), (5, 6, 7), "stop"),
    Committing(1, 9, b"\x07" * 32, (SegmentPosts(1, b"r" * 32, b"s" * 65, (b"", b"c" * 32), (b"", b"t" * 65)),)),
    Settled(b"\x08" * 32, 11, 300_000, "accepted"),
]


async def test_steps_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    for step in STEPS:
        await journal.record(TASK, step)
    journal.close()
    reopened = Journal(path)
    assert reopened.history(TASK) == STEPS
    assert list(reopened.times(TASK)) == [
        "received",
        "opening",
        "generating",
        "opened",
        "generated",
        "committing",
        "settled",
    ]
    reopened.close()


@pytest.mark.parametrize("last", [Settled(b"", 1, 1, "accepted"), Aborted(b"", 1, 1), Failed("c", "m", False)])
def test_a_task_is_unfinished_until_a_final_step(tmp_path: Path, last: Record) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    assert not journal.known(TASK)
    journal.append(TASK, RECEIVED)
    journal.append(b"\x09" * 32, RECEIVED)
    journal.append(TASK, Aborting("code", "message"))
    assert journal.known(TASK)
    assert journal.unfinished() == [TASK, b"\x09" * 32]
    journal.append(TASK, last)
    assert journal.unfinished() == [b"\x09" * 32]
    journal.close()


def test_a_step_is_on_stable_storage_when_it_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = Journal(path)
    journal.append(TASK, RECEIVED)
    other = sqlite3.connect(path)
    assert other.execute("SELECT step FROM steps").fetchall() == [("received",)]
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert journal._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    other.close()
    journal.close()


def test_prompts_in_it_are_private(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    journal.append(TASK, RECEIVED)
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    journal.close()


def test_timings_are_kept_beside(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    assert journal.timings(TASK) == {}
    journal.keep_timings(TASK, {"relay": 0.25})
    journal.keep_timings(TASK, {"relay": 0.5})
    assert journal.timings(TASK) == {"relay": 0.5}
    journal.close()


def test_the_story_has_the_newest_of_each_kind() -> None:
    story = Story.of(STEPS)
    assert story.received == RECEIVED
    assert story.generating == Generating(1, (1, 1))
    assert story.step == "settled"
    assert story.ended
    assert not Story.of(STEPS[:-1]).ended
    assert Story.of([]).step == ""
