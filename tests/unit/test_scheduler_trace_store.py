"""Rows and links on disk."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from troth.protocol.wire_fields import RowSignature
from troth.scheduler.trace_store import Link, TraceStore

TASK = b"\x01" * 32


def link(position: int, count: int) -> Link:
    row = RowSignature(position, bytes([position]) * 32, b"p" * 32, b"s" * 65)
    return Link(count, row, b"c" * 65)


def test_rows_and_links_come_back(tmp_path: Path) -> None:
    traces = TraceStore(tmp_path).open(TASK, 4)
    traces.append(0, 0, b"aaaabbbbcccc", link(2, 3))
    traces.append(0, 0, memoryview(b"dddd"), link(3, 1))
    traces.append(1, 0, b"eeee", link(0, 1))
    traces.append(0, 1, b"ffff", link(0, 1))
    assert traces.rows(0, 0, 1, 3) == b"bbbbccccdddd"
    assert traces.rows(0, 1, 0, 1) == b"ffff"
    assert list(traces.links(0, 0)) == [link(2, 3), link(3, 1)]
    assert traces.last_link(0, 0) == link(3, 1)
    traces.sync()
    traces.close()
    again = TraceStore(tmp_path).open(TASK, 4)
    assert again.rows(0, 0, 0, 4) == b"aaaabbbbccccdddd"


def test_rows_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    traces = TraceStore(tmp_path).open(TASK, 4)
    traces.append(0, 0, b"aaaa", link(0, 1))
    with pytest.raises(EOFError, match=r"rows 0\+2"):
        traces.rows(0, 0, 0, 2)


def test_old_tasks_are_forgotten_by_name(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    for number in (1, 2):
        traces = store.open(bytes([number]) * 32, 4)
        traces.append(0, 0, b"aaaa", link(0, 1))
        traces.close()
    past = time.time() - 100
    os.utime(tmp_path / (b"\x01" * 32).hex(), (past, past))
    assert store.older_than(time.time() - 50) == [b"\x01" * 32]
    store.forget(b"\x01" * 32)
    store.forget(b"\x01" * 32)
    assert store.older_than(time.time() + 1) == [b"\x02" * 32]
