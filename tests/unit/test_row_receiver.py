"""Rows from vLLM's worker over a real socket: taken in a thread, noted on the event loop, bounded in memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from troth.node.engine.vllm import row_receiver
from troth.node.engine.vllm.row_frames import FRAME_LIMIT, LENGTH, Piece, frame_to_bytes
from troth.node.engine.vllm.row_receiver import AHEAD, RowReceiver
from troth.node.errors import EngineError

WIDTH = 4


class Board:
    """What a receiver tells."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.reasons: list[str] = []
        self.changed = asyncio.Event()
        self.refuses = False

    def take(self, pieces: Sequence[Piece]) -> None:
        if self.refuses:
            raise EngineError("rows of a request are missing", None, "The engine is started anew.")
        self.pieces += pieces
        self.changed.set()

    def ended(self, reason: str) -> None:
        self.reasons.append(reason)
        self.changed.set()

    async def until(self, *, pieces: int = 0, reasons: int = 0) -> None:
        async with asyncio.timeout(10):
            while len(self.pieces) < pieces or len(self.reasons) < reasons:
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def board() -> Board:
    return Board()


@pytest.fixture
async def worker(board: Board) -> AsyncIterator[tuple[RowReceiver, socket.socket]]:
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket is short
        path = Path(folder) / "rows"
        receiver = RowReceiver(path, lambda: (WIDTH, "uint16"), board.take, board.ended)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(path))
        yield receiver, connection
        connection.close()
        receiver.close()


def framed(*parts: tuple[str, int, int], first: int = 0) -> bytes:
    count = sum(part[2] for part in parts)
    rows = np.arange(first, first + count * WIDTH, dtype=np.uint16)
    frame = frame_to_bytes(parts, rows.tobytes())
    return LENGTH.pack(len(frame)) + frame


async def test_rows_come_in_pieces_of_their_own(board: Board, worker: tuple[RowReceiver, socket.socket]) -> None:
    receiver, connection = worker
    connection.sendall(framed(("a", 0, 2), ("b", 7, 1)) + framed(("a", 2, 1), first=50))
    await board.until(pieces=3)
    assert [(name, start, len(rows)) for name, start, rows in board.pieces] == [("a", 0, 2), ("b", 7, 1), ("a", 2, 1)]
    assert board.pieces[0][2].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert board.pieces[2][2].tolist() == [[50, 51, 52, 53]]
    # None of them keeps a step's buffer in memory.
    assert all(rows.base is None and rows.flags.owndata for _, _, rows in board.pieces)
    assert receiver.seconds > 0


async def test_a_frame_may_come_byte_by_byte_and_be_larger_than_the_buffer(
    board: Board, worker: tuple[RowReceiver, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_receiver, "SMALLEST_BUFFER", 64)
    _, connection = worker
    for byte in framed(("a", 0, 1)):
        connection.send(bytes([byte]))
        await asyncio.sleep(0)
    large = (row_receiver.SMALLEST_BUFFER + (1 << 20)) // (2 * WIDTH)
    await asyncio.to_thread(connection.sendall, framed(("a", 1, large)))
    connection.sendall(framed(("a", 1 + large, 1), first=9))
    await board.until(pieces=3)
    assert len(board.pieces[1][2]) == large
    assert board.pieces[2][2].tolist() == [[9, 10, 11, 12]]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "has ended"),
        (framed(("a", 0, 1))[:-1], "has ended"),
        (LENGTH.pack(FRAME_LIMIT + 1), "too long"),
        (LENGTH.pack(3) + b"\x00\x01\x02", "no frame of rows"),
        (LENGTH.pack(len(frame_to_bytes([("a", 0, 2)], bytes(8)))) + frame_to_bytes([("a", 0, 2)], bytes(8)), "other"),
    ],
    ids=["nothing", "cut off", "too long", "junk", "other rows than it says"],
)
async def test_the_end_is_told_once_with_its_reason(
    board: Board, worker: tuple[RowReceiver, socket.socket], sent: bytes, reason: str
) -> None:
    _, connection = worker
    connection.sendall(sent)
    connection.shutdown(socket.SHUT_WR)
    await board.until(reasons=1)
    await asyncio.sleep(0.02)
    assert len(board.reasons) == 1
    assert reason in board.reasons[0]
    assert board.pieces == []


async def test_rows_that_do_not_fit_end_it(board: Board, worker: tuple[RowReceiver, socket.socket]) -> None:
    _, connection = worker
    board.refuses = True
    connection.sendall(framed(("a", 5, 1)))
    await board.until(reasons=1)
    assert "missing" in board.reasons[0]
    # The worker is not kept waiting for somebody who takes nothing more.
    with contextlib.suppress(ConnectionError):
        assert await asyncio.to_thread(connection.recv, 1) == b""


async def test_a_loop_that_is_busy_holds_the_worker_up(board: Board, worker: tuple[RowReceiver, socket.socket]) -> None:
    _, connection = worker
    frame, sent = framed(("a", 0, 8_192)), [0]

    def send() -> None:
        with contextlib.suppress(OSError):
            for _ in range(200):
                connection.sendall(frame)
                sent[0] += 1

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    # Nothing is awaited: the event loop is busy.
    sending.join(0.5)
    room = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // len(frame)
    assert sending.is_alive()
    assert sent[0] <= AHEAD + room + 4
    await board.until(pieces=200)
    sending.join(5)
    assert sent[0] == 200


async def test_closing_ends_a_thread_that_nobody_ever_connected_to(board: Board) -> None:
    with tempfile.TemporaryDirectory() as folder:
        receiver: Any = RowReceiver(Path(folder) / "rows", lambda: (WIDTH, "uint16"), board.take, board.ended)
        receiver.close()
        await asyncio.to_thread(receiver._thread.join, 5)
        assert not receiver._thread.is_alive()
