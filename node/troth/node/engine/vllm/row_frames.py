"""How rows come from vLLM's process: one frame per engine step over a Unix socket that only this user can reach.

A frame is a little-endian uint32, its length, and a msgpack array: a list of (request, first position, positions), and
the bytes of all rows in that order. Neither side trusts the other for sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from troth.node.errors import EngineError

LENGTH = struct.Struct("<I")
FRAME_LIMIT = 1 << 30
"""Bytes of the longest frame: 65,536 positions of 8,192 bfloat16 words in one step."""

Part = tuple[str, int, int]
Piece = tuple[str, int, NDArray[Any]]
"""Rows of one request from a position on, in memory of their own."""


class RowFrame(NamedTuple):
    """Which rows came: `parts` of (request, first position, positions); `rows` one below the other."""

    parts: list[Part]
    rows: NDArray[Any]

    def pieces(self) -> list[Piece]:
        """The rows of each part, copied: a view would keep the rows of all requests of a step in memory."""
        found, begin = [], 0
        for request, start, count in self.parts:
            found.append((request, start, self.rows[begin : begin + count].copy()))
            begin += count
        return found


class _WireFrame(msgspec.Struct, array_like=True, frozen=True):
    parts: list[Part]
    rows: memoryview


def frame_to_bytes(parts: Sequence[Part], rows: bytes | memoryview) -> bytes:
    """The frame without its length."""
    return msgspec.msgpack.encode([parts, rows])


def frame_from_bytes(data: bytes | memoryview, hidden_size: int, storage: str) -> RowFrame:
    """Read a frame; `storage` is the numpy name of a word.

    Raises:
        EngineError: it is no frame, or its parts and its rows do not fit together.
    """
    try:
        wire = msgspec.msgpack.decode(data, type=_WireFrame)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise EngineError("vLLM's process sent no frame of rows", str(error), "The engine is started anew.") from error
    width = hidden_size * np.dtype(storage).itemsize
    counts = [count for _, start, count in wire.parts if start >= 0 and count > 0]
    if len(counts) != len(wire.parts) or sum(counts) * width != len(wire.rows):
        raise EngineError("a frame holds other rows than it says", len(wire.rows), "The engine is started anew.")
    return RowFrame(wire.parts, np.frombuffer(wire.rows, dtype=storage).reshape(-1, hidden_size))
