"""Traces outlive the process, are counted, and damage is named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from troth.node.errors import NodeStorageError
from troth.node.orders import traces
from troth.node.orders.traces import StoredTrace, TraceStore


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def trace(task: int, created_at: float = 1000.0, dtype: int = 0) -> StoredTrace:
    return StoredTrace(bytes([task]) * 32, 0, 0, 5, 8, dtype, b"r" * 32, b"s" * 32, created_at)


ROWS = np.arange(40, dtype=np.float32).reshape(5, 8)


@pytest.fixture(params=["short", "long"])
def length(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Short traces are in the index, long ones in files."""
    if request.param == "long":
        monkeypatch.setattr(traces, "SHORT_BYTES", 0)
    return str(request.param)


@pytest.mark.usefixtures("length")
def test_a_trace_survives_a_restart_bit_for_bit(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    store.keep(trace(1), ROWS)
    store.keep(trace(2, dtype=1), ROWS.astype(np.uint16))
    store.close()
    again = TraceStore(tmp_path)
    found, half = again.find(b"\x01" * 32, 0, 0), again.find(b"\x02" * 32, 0, 0)
    assert found == trace(1)
    assert half is not None
    np.testing.assert_array_equal(again.rows(found), ROWS)
    assert again.rows(half).dtype == np.uint16
    assert again.find(b"\x01" * 32, 0, 1) is None


def test_states_are_private(tmp_path: Path) -> None:
    TraceStore(tmp_path / "traces").close()
    assert (tmp_path / "traces").stat().st_mode & 0o077 == 0


def test_traces_are_listed_from_the_oldest_on(tmp_path: Path, length: str) -> None:
    clock = Clock()
    store = TraceStore(tmp_path, clock)
    for order in (3, 1, 2):
        store.keep(trace(order, store.now()), ROWS)
        clock.now += 10
    assert [kept.order_id[0] for kept in store.all()] == [3, 1, 2]
    dropped = next(store.all())
    store.drop(dropped)
    assert [kept.order_id[0] for kept in store.all()] == [1, 2]
    assert len(list(tmp_path.glob("*.trace"))) == (2 if length == "long" else 0)
    with pytest.raises(NodeStorageError, match="gone"):
        store.rows(dropped)


@pytest.mark.usefixtures("length")
def test_bytes_on_disk_are_counted_without_reading_them_all(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    for task in (1, 2, 2, 3):
        store.keep(trace(task), ROWS)
    store.drop(trace(3))
    store.drop(trace(3))
    assert store.kept == 2 * ROWS.nbytes == TraceStore(tmp_path).kept


def test_damage_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "SHORT_BYTES", 0)
    store = TraceStore(tmp_path)
    store.keep(trace(1), ROWS)
    (file,) = tmp_path.glob("*.trace")
    file.write_bytes(b"short")
    with pytest.raises(NodeStorageError, match="damaged"):
        store.rows(trace(1))
    file.unlink()
    with pytest.raises(NodeStorageError, match="gone"):
        store.rows(trace(1))


def test_a_full_disk_keeps_no_part_of_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of each would make the disk fuller, and nobody would drop it."""
    monkeypatch.setattr(traces, "SHORT_BYTES", 0)
    store = TraceStore(tmp_path)

    def full(*_arguments: object) -> None:
        raise OSError("No space left on device")

    def keep_in_vain(place: Any, number: int) -> None:
        with monkeypatch.context() as disk:
            disk.setattr(*place, full)
            with pytest.raises(NodeStorageError):
                store.keep(trace(number), ROWS)

    keep_in_vain((os, "fsync"), 1)
    keep_in_vain((store, "_write"), 2)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("index.")] == []
    assert store.kept == 0
    store.keep(trace(2), ROWS)
    keep_in_vain((store, "_write"), 2)
    np.testing.assert_array_equal(store.rows(trace(2)), ROWS)  # what was kept before stays
