"""Takes rows from vLLM's worker in a thread: read into one buffer, checked, and copied apart by requests.

The event loop is woken once for each frame, with rows that need no more than to be noted. A frame may hold megabytes
where prompts are read, which would hold the loop up for tens of milliseconds. Only ``AHEAD`` frames wait for the loop:
then the thread rests, the socket fills, and vLLM's forward pass waits.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from troth.node.engine.vllm.row_frames import FRAME_LIMIT, LENGTH, Piece, frame_from_bytes
from troth.node.errors import EngineError

AHEAD = 4
"""Frames that wait for the event loop."""
SMALLEST_BUFFER = 1 << 20
ENDED = "vLLM's worker has ended"


class RowReceiver:
    """One worker's rows. ``take`` and ``ended``, with the reason, are called on the event loop that made it.

    ``format_of`` tells hidden size and storage of a row; it is asked once there is a frame.
    """

    def __init__(
        self,
        path: Path,
        format_of: Callable[[], tuple[int, str]],
        take: Callable[[Sequence[Piece]], None],
        ended: Callable[[str], None],
    ) -> None:
        """Listens at ``path`` from now on, for one connection."""
        self._format_of, self._take, self._ended = format_of, take, ended
        self._loop = asyncio.get_running_loop()
        self._waiting = threading.Semaphore(AHEAD)
        self._closed = False
        self.seconds = 0.0
        """Processor seconds that it has taken so far."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="rows", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take nothing more; the worker sees that its connection is closed."""
        self._closed = True
        for one in (self._listener, self._connection):
            if one is not None:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._waiting.release()

    def _run(self) -> None:
        reason = ENDED
        try:
            with self._listener:
                self._connection, _ = self._listener.accept()
            with self._connection:
                self._receive(self._connection)
        except EngineError as error:
            reason = error.what
        except OSError:
            # The worker went, or `close` was called: both are what ENDED says.
            pass
        finally:
            with suppress(RuntimeError):  # the loop is closed: nobody wants to know
                self._loop.call_soon_threadsafe(self._ended, reason)

    def _receive(self, connection: socket.socket) -> None:
        buffer = bytearray(SMALLEST_BUFFER)
        head = bytearray(LENGTH.size)
        while _filled(connection, memoryview(head)):
            (length,) = LENGTH.unpack(head)
            if length > FRAME_LIMIT:
                raise EngineError("a frame of rows is too long", length, "The engine is started anew.")
            if length > len(buffer) or len(buffer) > max(4 * length, SMALLEST_BUFFER):
                # Long prompts are rare: what one of them needed is not held for ever.
                buffer = bytearray(max(length, SMALLEST_BUFFER))
            frame = memoryview(buffer)[:length]
            if not _filled(connection, frame):
                return
            began = time.thread_time()
            pieces = frame_from_bytes(frame, *self._format_of()).pieces()
            self.seconds += time.thread_time() - began
            self._waiting.acquire()
            if self._closed:
                return
            self._loop.call_soon_threadsafe(self._note, pieces)

    def _note(self, pieces: Sequence[Piece]) -> None:
        self._waiting.release()
        if self._closed:
            return
        try:
            self._take(pieces)
        except EngineError as error:
            self.close()
            self._ended(error.what)


def _filled(connection: socket.socket, room: memoryview) -> bool:
    """Whether all of ``room`` was read; False at the connection's end."""
    while room:
        count = connection.recv_into(room, len(room), socket.MSG_WAITALL)
        if not count:
            return False
        room = room[count:]
    return True
