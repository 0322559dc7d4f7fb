"""Version 1 of the weights root binds every byte, row, name, shape and dtype, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from troth.node.errors import ModelError
from troth.node.models.roots.number_roots import ROW_TAG_1, TENSOR_TAG_1, WEIGHTS_TAG_1, number_root, numbers_root
from troth.protocol.hashing import keccak256


def matrix(rows: int, columns: int) -> np.ndarray:
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)


def test_one_row_is_the_documented_hash() -> None:
    row = matrix(1, 3)
    name = keccak256(b"norm")
    leaf = keccak256(ROW_TAG_1 + name + bytes(4) + row.tobytes())
    tensor = keccak256(TENSOR_TAG_1 + name + (1).to_bytes(4, "big") + (3).to_bytes(4, "big") + b"\x00" + leaf)
    assert number_root("norm", row, 0) == tensor
    assert numbers_root([("norm", row)], 0) == keccak256(WEIGHTS_TAG_1 + (1).to_bytes(4, "big") + tensor)


def test_three_rows_are_padded_with_a_zero_leaf() -> None:
    rows = matrix(3, 2)
    name = keccak256(b"w")
    leaves = [keccak256(ROW_TAG_1 + name + i.to_bytes(4, "big") + rows[i].tobytes()) for i in range(3)] + [bytes(32)]
    left, right = (keccak256(b"\x01" + leaves[i] + leaves[i + 1]) for i in (0, 2))
    shape = (3).to_bytes(4, "big") + (2).to_bytes(4, "big") + b"\x00"
    assert number_root("w", rows, 0) == keccak256(TENSOR_TAG_1 + name + shape + keccak256(b"\x01" + left + right))


def test_order_of_files_does_not_matter_and_content_does() -> None:
    first, second = matrix(4, 8), matrix(5, 8) + 1
    root = numbers_root([("a", first), ("b", second)], 0)
    assert numbers_root([("b", second), ("a", first)], 0) == root
    changed = first.copy()
    changed[3, 7] = np.nextafter(changed[3, 7], np.float32(0))
    others = [
        [("a", changed), ("b", second)],
        [("a", second), ("b", first)],
        [("a", first)],
        [("a", first.reshape(8, 4)), ("b", second)],
    ]
    assert root not in {numbers_root(other, 0) for other in others}
    assert numbers_root([("a", first), ("b", second)], 1) != root


def test_big_endian_memory_gives_the_same_root() -> None:
    rows = matrix(4, 8)
    assert number_root("a", rows.astype(">f4"), 0) == number_root("a", rows, 0)


@pytest.mark.parametrize("tensors", [[], [("a", matrix(1, 1)), ("a", matrix(1, 1))], [("a", np.zeros(3))]])
def test_what_is_no_model_is_refused(tensors: list[tuple[str, np.ndarray]]) -> None:
    with pytest.raises(ModelError):
        numbers_root(tensors, 0)


def test_progress_counts_all_bytes() -> None:
    seen: list[int] = []
    numbers_root([("a", matrix(4, 8)), ("b", matrix(2, 2))], 0, seen.append)
    assert sum(seen) == 4 * 8 * 4 + 2 * 2 * 4
