"""Tiles, tree and root of a trace, against the words of the rule written out element by element."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from troth.protocol.errors import InvalidField, InvalidOpening, InvalidTrace
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.tensors import Dtype
from troth.protocol.trace import (
    TILE_TAG,
    TileLayout,
    TileOpening,
    depth_of,
    opening_root,
    tile_columns,
    tile_count,
    validate_trace,
)

TASK, MODEL = keccak256(b"task"), keccak256(b"model")
SHAPES = [
    (1, 1, Dtype.FLOAT32),
    (8, 16, Dtype.FLOAT32),
    (9, 17, Dtype.FLOAT32),
    (21, 40, Dtype.FLOAT32),
    (5, 33, Dtype.BFLOAT16),
    (40, 64, Dtype.BFLOAT16),
]
ALL_SHAPES = pytest.mark.parametrize(("rows", "columns", "dtype"), SHAPES)


def random_trace(rows: int, columns: int, dtype: Dtype) -> np.ndarray[Any, Any]:
    trace = np.random.default_rng(rows * columns).standard_normal((rows, columns)).astype(np.float32)
    return trace if dtype is Dtype.FLOAT32 else (trace.view(np.uint32) >> 16).astype(np.uint16)


def plain_root(trace: np.ndarray[Any, Any], dtype: Dtype) -> bytes:
    rows, columns = trace.shape
    seed = abi_keccak(["bytes32", "bytes32", "bytes32"], [TILE_TAG, TASK, MODEL])
    row_order, column_order = (
        sorted(
            range(size), key=np.random.Philox(key=int.from_bytes(key, "little")).random_raw(size).tolist().__getitem__
        )
        for key, size in ((seed[:16], rows), (seed[16:], columns))
    )
    width = tile_columns(dtype)
    leaves: list[bytes] = []
    for row_block in range(0, rows, 8):
        for column_block in range(0, columns, width):
            tile = b"".join(
                int(
                    trace.view(f"u{dtype.element_bytes}")[
                        row_order[(row_block + i) % rows], column_order[(column_block + j) % columns]
                    ]
                ).to_bytes(dtype.element_bytes, "big")
                for i in range(8)
                for j in range(width)
            )
            assert len(tile) == 512
            leaves.append(keccak256(b"\x00" + struct.pack(">I", len(leaves)) + tile))
    leaves += [bytes(32)] * (2 ** depth_of(len(leaves)) - len(leaves))
    while len(leaves) > 1:
        leaves = [keccak256(b"\x01" + leaves[i] + leaves[i + 1]) for i in range(0, len(leaves), 2)]
    return keccak256(b"\x02" + struct.pack(">IIB", rows, columns, dtype) + leaves[0])


@ALL_SHAPES
def test_the_root_is_as_the_rule_says(rows: int, columns: int, dtype: Dtype) -> None:
    trace = random_trace(rows, columns, dtype)
    assert TileLayout(TASK, MODEL, rows, columns, dtype).commit(trace).root == plain_root(trace, dtype)


@ALL_SHAPES
def test_every_tile_opens(rows: int, columns: int, dtype: Dtype) -> None:
    committed = TileLayout(TASK, MODEL, rows, columns, dtype).commit(random_trace(rows, columns, dtype))
    count = tile_count(rows, columns, dtype)
    for index in range(count):
        opening = committed.open([index])
        assert opening_root(rows, columns, dtype, [index], opening) == committed.root
    indices = [count - 1, 0]
    assert opening_root(rows, columns, dtype, indices, committed.open(indices)) == committed.root


def test_the_frozen_root() -> None:
    """A change of this value breaks every commitment that was ever made."""
    trace = np.arange(9 * 20, dtype=np.float32).reshape(9, 20)
    root = TileLayout(bytes(32), b"\x01" * 32, 9, 20, Dtype.FLOAT32).commit(trace).root
    assert root.hex() == "4171fa04614b2f1f4abd3bbcaf8ddadd28d7da0462553e740af7f7a6459c6446"


def test_every_element_counts_and_the_order_depends_on_task_and_model() -> None:
    trace = random_trace(9, 17, Dtype.FLOAT32)
    layout = TileLayout(TASK, MODEL, 9, 17, Dtype.FLOAT32)
    roots = {layout.commit(trace).root}
    for row in range(9):
        for column in range(17):
            changed = trace.copy()
            changed[row, column] = np.nextafter(changed[row, column], np.float32(9))
            roots.add(layout.commit(changed).root)
    assert len(roots) == 1 + 9 * 17
    other_task = TileLayout(MODEL, MODEL, 9, 17, Dtype.FLOAT32)
    other_model = TileLayout(TASK, TASK, 9, 17, Dtype.FLOAT32)
    assert layout.commit(trace).root not in {other_task.commit(trace).root, other_model.commit(trace).root}


def test_arrays_that_are_not_contiguous_commit_alike() -> None:
    trace = random_trace(21, 40, Dtype.FLOAT32)
    layout = TileLayout(TASK, MODEL, 21, 40, Dtype.FLOAT32)
    wide = np.zeros((21, 80), dtype=np.float32)
    wide[:, ::2] = trace
    assert layout.commit(wide[:, ::2]).root == layout.commit(np.asfortranarray(trace)).root == layout.commit(trace).root


def test_padding_repeats_and_is_never_zero() -> None:
    trace = np.full((3, 5), 7.0, dtype=np.float32)
    tiles = TileLayout(TASK, MODEL, 3, 5, Dtype.FLOAT32).cut(trace)
    assert np.frombuffer(tiles.tobytes(), dtype=">f4").tolist() == [7.0] * 128


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ([[1.0]], "numpy array"),
        (np.zeros((2, 3)), "number format"),
        (np.zeros((2, 3), dtype=">f4"), "number format"),
        (np.zeros((3, 2), dtype=np.float32), "shape"),
        (np.zeros((2, 3, 1), dtype=np.float32), "shape"),
        (np.array([[0, 0, 0], [0, np.nan, 0]], dtype=np.float32), r"not finite, at: \(1, 1\)"),
        (np.array([[0, 0, -np.inf], [0, 0, 0]], dtype=np.float32), r"not finite, at: \(0, 2\)"),
    ],
)
def test_arrays_that_are_no_trace_are_refused(trace: Any, message: str) -> None:
    with pytest.raises(InvalidTrace, match=message):
        validate_trace(trace, 2, 3, Dtype.FLOAT32)


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC0, 0xFFFF])
def test_bfloat16_that_is_not_finite_is_refused(bits: int) -> None:
    trace = np.full((1, 2), 0x7F7F, dtype=np.uint16)
    validate_trace(trace, 1, 2, Dtype.BFLOAT16)
    trace[0, 1] = bits
    with pytest.raises(InvalidTrace, match=r"\(0, 1\)"):
        validate_trace(trace, 1, 2, Dtype.BFLOAT16)


def test_layouts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidField, match="32 bytes"):
        TileLayout(b"short", MODEL, 1, 1, Dtype.FLOAT32)
    for rows, columns in ((0, 1), (1, 0), (2**32, 1), (2**31, 2**31)):
        with pytest.raises(InvalidField, match="rows, columns"):
            TileLayout(TASK, MODEL, rows, columns, Dtype.FLOAT32)


def test_openings_that_do_not_fit_are_refused() -> None:
    layout = TileLayout(TASK, MODEL, 21, 40, Dtype.FLOAT32)
    committed = layout.commit(random_trace(21, 40, Dtype.FLOAT32))
    opening = committed.open([4])

    def root(index: int, tile: bytes, siblings: tuple[bytes, ...], rows: int = 21) -> bytes:
        return opening_root(rows, 40, Dtype.FLOAT32, [index], TileOpening(tile, siblings))

    def refuse(message: str, index: int, tile: bytes, siblings: tuple[bytes, ...]) -> None:
        with pytest.raises(InvalidOpening, match=message):
            root(index, tile, siblings)

    changed = bytes([opening.tiles[0] ^ 1]) + opening.tiles[1:]
    assert root(4, opening.tiles, opening.siblings) == committed.root
    assert root(4, changed, opening.siblings) != committed.root
    assert root(5, opening.tiles, opening.siblings) != committed.root
    assert root(4, opening.tiles, opening.siblings[::-1]) != committed.root
    assert root(4, opening.tiles, opening.siblings, rows=22) != committed.root
    refuse("no such tile", 9, opening.tiles, opening.siblings)
    refuse("no such tile", -1, opening.tiles, opening.siblings)
    refuse("tile bytes", 4, opening.tiles[:-1], opening.siblings)
    refuse("number of siblings", 4, opening.tiles, opening.siblings[:-1])
    refuse("number of siblings", 4, opening.tiles, (*opening.siblings[:-1], b"short"))
    with pytest.raises(InvalidOpening, match="no such tile"):
        committed.open([9])
    with pytest.raises(InvalidOpening, match="tile bytes"):
        opening_root(21, 40, Dtype.FLOAT32, [], TileOpening(b"", ()))
    both = committed.open([4, 5])
    mixed = TileOpening(changed + both.tiles[512:], both.siblings)
    with pytest.raises(InvalidOpening, match="different roots"):
        opening_root(21, 40, Dtype.FLOAT32, [4, 5], mixed)
