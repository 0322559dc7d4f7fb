"""Version 1 of the weights root, of models that were registered by it.

It is over the numbers in the descriptor's dtype, so that it says nothing of integers and scales that are cast: only
models all of whose tensors are floats have one.

    leaf(tensor, row) = keccak256(ROW_TAG_1 ‖ keccak256(name) ‖ uint32be(row) ‖ row in the dtype, little-endian)
    root(tensor)      = keccak256(TENSOR_TAG_1 ‖ keccak256(name) ‖ uint32be(rows) ‖ uint32be(columns) ‖ dtype ‖ tree)
    weights root      = keccak256(WEIGHTS_TAG_1 ‖ uint32be(tensors) ‖ tree over root(tensor))

Trees pad their leaves with 32 zero bytes to the next power of two; node = keccak256(0x01 ‖ left ‖ right), as in the
trace tree. A vector is one row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.errors import ModelError
from troth.node.models.roots.weights_root import Progress
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32
from troth.protocol.weight_rows import tree_root

ROW_TAG_1 = keccak256(b"troth/weight-row/1")
TENSOR_TAG_1 = keccak256(b"troth/weight-tensor/1")
WEIGHTS_TAG_1 = keccak256(b"troth/weights/1")


def number_root(name: str, rows: NDArray[Any], dtype: int) -> bytes:
    """Version 1's root of one tensor given as a 2-d array whose little-endian bytes are the weights in their dtype.

    Args: `rows` has shape (rows, columns); `dtype` is the descriptor's number (0 float32, 1 bfloat16).
    """
    if rows.ndim != 2 or 0 in rows.shape:
        raise ModelError(f"tensor {name} is not a non-empty matrix", rows.shape, "Reshape a vector to one row.")
    row_count, columns = rows.shape
    name_hash = keccak256(name.encode())
    prefix = ROW_TAG_1 + name_hash
    stride = columns * rows.dtype.itemsize
    flat = np.ascontiguousarray(rows).astype(rows.dtype.newbyteorder("<"), copy=False).tobytes()
    leaves = [
        keccak256(prefix + row.to_bytes(4, "big") + flat[row * stride : (row + 1) * stride]) for row in range(row_count)
    ]
    shape = row_count.to_bytes(4, "big") + columns.to_bytes(4, "big") + bytes([dtype])
    return keccak256(TENSOR_TAG_1 + name_hash + shape + tree_root(leaves))


def numbers_root(
    tensors: Iterable[tuple[str, NDArray[Any]]], dtype: int, progress: Progress = lambda size: None
) -> Hash32:
    """Version 1 over all tensors of a model; the order they come in does not matter, a name may come once.

    `progress` is called with the bytes of each finished tensor.
    """
    roots: dict[str, bytes] = {}
    for name, rows in tensors:
        if name in roots:
            raise ModelError("a tensor name came twice", name, "Remove the duplicate from the safetensors files.")
        roots[name] = number_root(name, rows, dtype)
        progress(rows.nbytes)
    if not roots:
        raise ModelError("the model has no tensors", None, "Point to a folder with *.safetensors files.")
    tree = tree_root([roots[name] for name in sorted(roots)])
    return Hash32(keccak256(WEIGHTS_TAG_1 + len(roots).to_bytes(4, "big") + tree))
