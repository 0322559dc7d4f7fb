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

from troth.protocol.errors import InvalidField, InvalidOpening, InvalidTrace
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.tensors import Dtype
from troth.protocol.types import Hash32, to_hash32

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
    """How one task's trace is cut: ``task`` and ``model`` are 32 bytes, ``rows`` positions, ``columns`` dimensions.

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
        message = framed.tobytes()
        length = 5 + TILE_BYTES
        leaves = [keccak256(message[start : start + length]) for start in range(0, len(message), length)]
        return CommittedTrace(self, tiles.tobytes(), _levels(leaves))


@dataclass(frozen=True, slots=True)
class CommittedTrace:
    """A trace's tiles and its tree. ``levels`` leave out nodes that cover padding only; the last level is the root."""

    layout: TileLayout
    tiles: bytes
    levels: tuple[tuple[bytes, ...], ...]

    @property
    def root(self) -> bytes:
        """The trace root, 32 bytes: what parties sign and commit to."""
        return trace_root(self.layout.rows, self.layout.columns, self.layout.dtype, self.levels[-1][0])

    def tile(self, index: int) -> bytes:
        """The 512 bytes of one tile; raises InvalidOpening if there is no such tile."""
        _check_index(index, self.layout.count)
        return self.tiles[index * TILE_BYTES : (index + 1) * TILE_BYTES]

    def open(self, indices: Sequence[int]) -> TileOpening:
        """The tiles at ``indices`` with their proofs, in that order; raises InvalidOpening if there is no such tile."""
        tiles = b"".join(self.tile(index) for index in indices)
        return TileOpening(tiles, tuple(sibling for index in indices for sibling in self._siblings(index)))

    def _siblings(self, index: int) -> list[bytes]:
        siblings = []
        for height, level in enumerate(self.levels[:-1]):
            neighbour = (index >> height) ^ 1
            siblings.append(level[neighbour] if neighbour < len(level) else _padding(height))
        return siblings


def trace_root(rows: int, columns: int, dtype: Dtype, tree_root: bytes) -> bytes:
    """keccak256(0x02 ‖ uint32be(rows) ‖ uint32be(columns) ‖ uint8 dtype ‖ tree root)."""
    shape = rows.to_bytes(4, "big") + columns.to_bytes(4, "big") + int(dtype).to_bytes(1, "big")
    return keccak256(ROOT_TAG + shape + tree_root)


def opening_root(rows: int, columns: int, dtype: Dtype, indices: Sequence[int], opening: TileOpening) -> bytes:
    """The trace root that an opening of the tiles at ``indices`` proves.

    Raises InvalidOpening if a length is wrong, an index is outside the trace, or two tiles lead to different roots.
    """
    count = tile_count(rows, columns, dtype)
    depth = depth_of(count)
    if not indices or len(opening.tiles) != TILE_BYTES * len(indices):
        remedy = f"Open {len(indices)} tiles of {TILE_BYTES} bytes (at least one)."
        raise InvalidOpening("The opening has another number of tile bytes", len(opening.tiles), remedy)
    if len(opening.siblings) != depth * len(indices) or any(len(sibling) != 32 for sibling in opening.siblings):
        remedy = f"Send {depth} siblings of 32 bytes for each of {len(indices)} tiles."
        raise InvalidOpening("The opening has another number of siblings", len(opening.siblings), remedy)
    roots = set()
    for place, index in enumerate(indices):
        _check_index(index, count)
        tile = opening.tiles[place * TILE_BYTES : (place + 1) * TILE_BYTES]
        roots.add(_climb(index, tile, opening.siblings[place * depth : (place + 1) * depth]))
    if len(roots) != 1:
        raise InvalidOpening("The tiles lead to different roots", len(roots), "Open all tiles from one commitment.")
    return trace_root(rows, columns, dtype, roots.pop())


def _climb(index: int, tile: bytes, siblings: Sequence[bytes]) -> bytes:
    digest = keccak256(LEAF_TAG + index.to_bytes(4, "big") + tile)
    for height, sibling in enumerate(siblings):
        pair = sibling + digest if (index >> height) & 1 else digest + sibling
        digest = keccak256(NODE_TAG + pair)
    return digest


def _check_index(index: int, count: int) -> None:
    if not 0 <= index < count:
        raise InvalidOpening("The trace has no such tile", index, f"Tiles are numbered 0..{count - 1}.")


def _levels(leaves: list[bytes]) -> tuple[tuple[bytes, ...], ...]:
    levels = [tuple(leaves)]
    for height in range(depth_of(len(leaves))):
        nodes = list(levels[-1])
        if len(nodes) % 2:
            nodes.append(_padding(height))
        pairs = zip(nodes[::2], nodes[1::2], strict=True)
        levels.append(tuple(keccak256(NODE_TAG + left + right) for left, right in pairs))
    return tuple(levels)


@lru_cache(maxsize=64)
def _padding(height: int) -> bytes:
    """Root of a sub-tree of ``height`` levels over padding leaves only."""
    return PADDING_LEAF if height == 0 else keccak256(NODE_TAG + _padding(height - 1) * 2)


def _order(key: bytes, size: int) -> NDArray[np.intp]:
    """Stable argsort of the raw output of Philox-4x64 under a 16-byte key (two little-endian words), counter zero."""
    words = np.frombuffer(key, dtype="<u8").astype(np.uint64)
    drawn = np.random.Philox(key=words).random_raw(size)
    return np.asarray(np.argsort(drawn, kind="stable"), dtype=np.intp)


def _padded(order: NDArray[np.intp], multiple: int) -> NDArray[np.intp]:
    return np.resize(order, -(-len(order) // multiple) * multiple)


def tile_indices(seed: Hash32, segment: int, tiles: int, count: int) -> tuple[int, ...]:
    """Indices of the ``tiles`` opened out of ``count``, one per stratum; raises InvalidField if there are too few."""
    if not 0 < tiles <= count:
        raise InvalidField(
            f"A trace of {count} tiles cannot open so many", tiles, "Use a class that opens fewer tiles."
        )
    bounds = [stratum * count // tiles for stratum in range(tiles + 1)]
    return tuple(
        bounds[stratum] + _index_draw(seed, segment, stratum) % (bounds[stratum + 1] - bounds[stratum])
        for stratum in range(tiles)
    )


def _index_draw(seed: Hash32, segment: int, stratum: int) -> int:
    return int.from_bytes(keccak256(to_hash32(seed) + segment.to_bytes(32) + stratum.to_bytes(32)))
