"""Rows of a model's weights under its weights root, version 2: leaves, roots, and openings of single rows.

    leaf(tensor, row) = keccak256(ROW_TAG ‖ keccak256(name) ‖ uint32be(row) ‖ bytes of the row)
    root(tensor)      = keccak256(TENSOR_TAG ‖ keccak256(name) ‖ keccak256(dtype) ‖ uint32be(dimensions)
                                  ‖ uint64be(each dimension) ‖ uint32be(rows) ‖ tree)
    weights root      = keccak256(WEIGHTS_TAG ‖ keccak256(quantisation) ‖ uint32be(tensors) ‖ tree over root(tensor))

Trees pad their leaves with 32 zero bytes to the next power of two; node = keccak256(0x01 ‖ left ‖ right). The
contracts' library ``WeightsTree`` has the same rules for matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

import sha3

from troth.protocol.errors import InvalidOpening
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32

ROW_TAG = keccak256(b"troth/weight-row/2")
TENSOR_TAG = keccak256(b"troth/weight-tensor/2")
WEIGHTS_TAG = keccak256(b"troth/weights/2")
EMPTY = bytes(32)


def row_leaf(name: str, place: int, row: bytes) -> bytes:
    """The leaf of one row."""
    return keccak256(ROW_TAG + keccak256(name.encode()) + place.to_bytes(4, "big") + row)


def tensor_hash(name: str, dtype: str, shape: Sequence[int], rows: int, tree: bytes) -> bytes:
    """The root of a tensor by the root of its tree."""
    dimensions = len(shape).to_bytes(4, "big") + b"".join(size.to_bytes(8, "big") for size in shape)
    named = keccak256(name.encode()) + keccak256(dtype.encode())
    return keccak256(TENSOR_TAG + named + dimensions + rows.to_bytes(4, "big") + tree)


def model_hash(quantisation: bytes, tensors: int, tree: bytes) -> Hash32:
    """The weights root; ``quantisation`` is keccak256 of the checkpoint's settings."""
    return Hash32(keccak256(WEIGHTS_TAG + quantisation + tensors.to_bytes(4, "big") + tree))


def tree_root(leaves: Sequence[bytes]) -> bytes:
    """Root of a binary tree over 32-byte leaves (at least one), padded with zero leaves to a power of two."""
    return _top(_padded(leaves, EMPTY))


def part_root(leaves: Sequence[bytes], size: int) -> bytes:
    """Root of a part of a tree that has so many leaves, a power of two; the last part is filled up with zero leaves."""
    return _top([*leaves, *[EMPTY] * (size - len(leaves))])


def root_of_parts(parts: Sequence[bytes], size: int) -> bytes:
    """`tree_root` by the roots of all its parts of so many leaves."""
    empty = EMPTY
    for _ in range(size.bit_length() - 1):
        empty = keccak256(b"\x01" + empty + empty)
    return _top(_padded(parts, empty))


def tree_path(leaves: Sequence[bytes], place: int) -> tuple[Hash32, ...]:
    """Siblings of a leaf, from the bottom."""
    level, path = _padded(leaves, EMPTY), []
    while len(level) > 1:
        path.append(Hash32(level[place ^ 1]))
        level, place = _above(level), place >> 1
    return tuple(path)


def root_of_path(leaf: bytes, place: int, leaves: int, siblings: Sequence[bytes]) -> bytes:
    """Root of a padded tree by one leaf; raises InvalidOpening for a path of another depth, or a leaf beyond it."""
    depth = len(siblings)
    if not 0 <= place < leaves or depth != (leaves - 1).bit_length():
        raise InvalidOpening(f"There is no such leaf among {leaves}", (place, depth), "Open it again.")
    for sibling in siblings:
        pair = leaf + sibling if place & 1 == 0 else sibling + leaf
        leaf, place = keccak256(b"\x01" + pair), place >> 1
    return leaf


def _padded(leaves: Sequence[bytes], empty: bytes) -> list[bytes]:
    return [*leaves, *[empty] * ((1 << (len(leaves) - 1).bit_length()) - len(leaves))]


def _top(level: list[bytes]) -> bytes:
    while len(level) > 1:
        level = _above(level)
    return level[0]


def _above(level: list[bytes]) -> list[bytes]:
    # Called for every row of a model once more, so without the function between.
    keccak = sha3.keccak_256
    pairs = iter(level)
    return [keccak(b"\x01" + left + right).digest() for left, right in zip(pairs, pairs, strict=True)]
