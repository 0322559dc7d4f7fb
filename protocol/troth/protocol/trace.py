"""The commitment to a trace: permuted 512-byte tiles under a keccak Merkle tree.

A trace is a matrix of boundary states, one row per position and one column per hidden dimension. Rows and columns are
put in a public order that depends on task and model alone, so that a tile of neighbours shows eight unrelated
positions at 16 (float32) or 32 (bfloat16) unrelated dimensions. Tiles are the leaves; hashes of leaves, nodes and the
root carry different tags, and the root binds the shape. The contract's library ``TileTree`` checks openings.

Whole tiles are filled by repeating permuted rows and columns from the start. Zeros would count as agreement between
any two parties, and would let a sample be wasted on numbers that nobody computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.protocol.dtype import Dtype
from troth.protocol.errors import InvalidField, InvalidOpening, InvalidTrace
from troth.protocol.hashing import abi_keccak, keccak256

TILE_BYTES = 512
TILE_ROWS = 8
TILE_TAG = keccak256(b"troth/tile/1")
"""Separates the seed of the tiles' order from every other hash of the same values."""

LEAF_TAG, NODE_TAG, ROOT_TAG = b"\x00", b"\x01", b"\x02"
PADDING_LEAF = bytes(32)
SIZE_LIMIT = 2**32
"""Rows, columns and leaf indices travel as four bytes."""

Matrix = NDArray[Any]


@dataclass(frozen=True, slots=True)
class TileOpening:
    """Opened tiles (512 bytes each, concatenated) and ``depth`` siblings per tile, from the bottom, tile by tile."""

    tiles: bytes
    siblings: tuple[bytes, ...]


def tile_columns(dtype: Dtype) -> int:
    """Columns of a tile: 16 in float32, 32 in bfloat16."""
    return TILE_BYTES // (TILE_ROWS * dtype.element_bytes)


def tile_count(rows: int, columns: int, dtype: Dtype) -> int:
    """Tiles of a trace of ``rows`` positions by ``columns`` dimensions."""
    return -(-rows // TILE_ROWS) * -(-columns // tile_columns(dtype))


def depth_of(count: int) -> int:
    """Depth of the tree over ``count`` leaves: ceil(log2(count))."""
    return (count - 1).bit_length()


def validate_trace(trace: Matrix, rows: int, columns: int, dtype: Dtype) -> None:
    """Checks that ``trace`` is a finite (rows, columns) matrix in the storage type of ``dtype``; else InvalidTrace."""
    if not isinstance(trace, np.ndarray):
        raise InvalidTrace("A trace is a numpy array", type(trace).__name__, "Convert the states to numpy first.")
    if trace.dtype != np.dtype(dtype.storage):
        remedy = f"Use native {dtype.storage} for {dtype.name.lower()} (bfloat16 as bit patterns)."
        raise InvalidTrace("The trace has another number format", str(trace.dtype), remedy)
    if trace.shape != (rows, columns):
        raise InvalidTrace("The trace has another shape", trace.shape, f"Pass {rows} rows by {columns} columns.")
    if not _all_finite(trace, dtype):
        where = np.argwhere(~_finite(trace, dtype))[0]
        remedy = "Do not commit to this trace: the model's run overflowed or its input was damaged."
        raise InvalidTrace("The trace holds a number that is not finite, at", tuple(int(i) for i in where), remedy)


def _all_finite(trace: Matrix, dtype: Dtype) -> bool:
    return bool(_finite(trace, dtype).all())


def _finite(trace: Matrix, dtype: Dtype) -> NDArray[np.bool_]:
    if dtype is Dtype.FLOAT32:
        return np.isfinite(trace)
    return np.asarray((trace & 0x7F80) != 0x7F80, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class TileLayout:
    """How the trace of one task is cut: ``task`` and ``model`` are 32 bytes, ``rows`` positions, ``columns`` dimensions.

    Raises InvalidField if an identifier is not 32 bytes long or a size is not in 1..2^32-1.
    """

    task: bytes
    model: bytes
    rows: int
    columns: int
    dtype: Dtype

    def __post_init__(self) -> None:
        for identifier in (self.task, self.model):
            if len(identifier) != 32:
                raise InvalidField("An identifier is 32 bytes long", identifier, "Pass the task id and the model id.")
        for size in (self.rows, self.columns, self.count):
            if not 0 < size < SIZE_LIMIT:
                raise InvalidField("A trace has between 1 and 2^32-1 rows, columns and tiles", size, "Check the shape.")

    @property
    def count(self) -> int:
        """Number of tiles."""
        return tile_count(self.rows, self.columns, self.dtype)

    def orders(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row order and column order, each repeated from the start up to whole tiles."""
        seed = abi_keccak(["bytes32", "bytes32", "bytes32"], [TILE_TAG, self.task, self.model])
        width = tile_columns(self.dtype)
        return _padded(_order(seed[:16], self.rows), TILE_ROWS), _padded(_order(seed[16:], self.columns), width)

    def cut(self, trace: Matrix) -> NDArray[np.uint8]:
        """All tiles as big-endian bytes, shape (count, 512); raises InvalidTrace as ``validate_trace`` does."""
        validate_trace(trace, self.rows, self.columns, self.dtype)
        row_order, column_order = self.orders()
        width = tile_columns(self.dtype)
        permuted = trace.view(f"u{self.dtype.element_bytes}")[row_order[:, None], column_order]
        blocks = permuted.reshape(len(row_order) // TILE_ROWS, TILE_ROWS, len(column_order) // width, width)
        tiles = blocks.transpose(0, 2, 1, 3).astype(f">u{self.dtype.element_bytes}", order="C")
        return tiles.reshape(self.count, -1).view(np.uint8)

    def commit(self, trace: Matrix) -> CommittedTrace:
        """Cuts the trace, hashes its tiles and builds the tree; raises InvalidTrace as ``validate_trace`` does."""
        tiles = self.cut(trace)
        framed = np.zeros((self.count, 5 + TILE_BYTES), dtype=np.uint8)
        framed[:, 1:5] = np.arange(self.count, dtype=">u4").view(np.uint8).reshape(-1, 4)
        framed[:, 5:] = tiles
        leaves = [keccak256(leaf) for leaf in memoryview(framed.tobytes()).cast("B", framed.shape)] if False else []
        return CommittedTrace(self, tiles.tobytes(), _levels(leaves))
