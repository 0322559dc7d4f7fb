"""The weights root: one Merkle leaf per weight row, so that a single row can be opened on chain later.

Version 2 is over what the files hold, whatever it means: their own bytes with dtype and shape. A quantised checkpoint's
words, scales and settings count as they are. Its leaves and roots are those of `troth.protocol.weight_rows`, where
`quantisation` is quantization_config as canonical JSON, empty without one; dtypes are named as safetensors does; what a
row is, `tensor_files.RawTensor.rows` says. Tensors are sorted by name.

Version 1, of models that were registered before, is over the numbers in the descriptor's dtype, so that it says nothing
of integers and scales that are cast: only models all of whose tensors are floats have one.

    leaf(tensor, row) = keccak256(ROW_TAG_1 ‖ keccak256(name) ‖ uint32be(row) ‖ row in the dtype, little-endian)
    root(tensor)      = keccak256(TENSOR_TAG_1 ‖ keccak256(name) ‖ uint32be(rows) ‖ uint32be(columns) ‖ dtype ‖ tree)
    weights root      = keccak256(WEIGHTS_TAG_1 ‖ uint32be(tensors) ‖ tree over root(tensor))

Trees pad their leaves with 32 zero bytes to the next power of two; node = keccak256(0x01 ‖ left ‖ right), as in the
trace tree. A vector is one row.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import sha3
from numpy.typing import NDArray

from troth.node.errors import ModelError
from troth.node.models.tensor_files import RawTensor, pieces, read_rows, rows_of_a_piece
from troth.protocol.architecture import canonical_json
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32
from troth.protocol.weight_rows import ROW_TAG, model_hash, part_root, root_of_parts, tensor_hash, tree_root

ROW_TAG_1 = keccak256(b"troth/weight-row/1")
TENSOR_TAG_1 = keccak256(b"troth/weight-tensor/1")
WEIGHTS_TAG_1 = keccak256(b"troth/weights/1")
THREADS = 2
TURN_SECONDS = 5e-6
"""A quarter of what the hash of a row of 8 kB takes."""

Progress = Callable[[int], None]


def weights_root(
    tensors: Sequence[RawTensor],
    quantisation: Mapping[str, Any] | None,
    progress: Progress = lambda size: None,
    threads: int = THREADS,
) -> Hash32:
    """Version 2 over all tensors of a model, of names that are all different; `progress` is told bytes.

    Memory is bounded: some pieces of the files at a time, and 32 bytes for each piece of one tensor.
    """
    roots = tensor_roots(tensors, progress, threads)
    tree = tree_root([roots[name] for name in sorted(roots)])
    return model_hash(settings_hash(quantisation), len(roots), tree)


def tensor_roots(
    tensors: Sequence[RawTensor], progress: Progress = lambda size: None, threads: int = THREADS
) -> dict[str, bytes]:
    """Version 2's root of each tensor by its name."""
    roots: dict[str, bytes] = {}
    parts: list[bytes] = []
    with _quick_turns(), ThreadPoolExecutor(threads, thread_name_prefix="weights-root") as pool:
        for tensor, end, part in _in_turn(pool, tensors, 2 * threads):
            progress((end - len(parts) * rows_of_a_piece(tensor)) * tensor.row_bytes)
            parts.append(part)
            if end == tensor.rows:
                roots[tensor.name], parts = _tensor_root(tensor, parts), []
    return roots


@contextmanager
def _quick_turns() -> Iterator[None]:
    """Threads that hash rows need the interpreter for a moment between two of them; one that builds its part of a tree,
    hash by hash, would keep it from the other for milliseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def settings_hash(quantisation: Mapping[str, Any] | None) -> bytes:
    """What a weights root binds of a checkpoint's settings."""
    return keccak256(b"" if quantisation is None else canonical_json(quantisation))


def _in_turn(
    pool: ThreadPoolExecutor, tensors: Sequence[RawTensor], ahead: int
) -> Iterator[tuple[RawTensor, int, bytes]]:
    """Where each piece of all tensors ends, and the root of its part of the tree, in order; `ahead` of them are under
    way at a time."""
    waiting: deque[tuple[RawTensor, int, Future[bytes]]] = deque()
    for tensor in tensors:
        for first, end in pieces(tensor):
            waiting.append((tensor, end, pool.submit(_part, tensor, first, end)))
            if len(waiting) >= ahead:
                done, until, future = waiting.popleft()
                yield done, until, future.result()
    for done, until, future in waiting:
        yield done, until, future.result()


def _part(tensor: RawTensor, first: int, end: int) -> bytes:
    """Built by the thread that hashed the rows: a third one would take turns from both."""
    leaves, size = row_leaves(tensor, first, end), rows_of_a_piece(tensor)
    return tree_root(leaves) if tensor.rows <= size else part_root(leaves, size)


def row_leaves(tensor: RawTensor, first: int, end: int) -> list[bytes]:
    """The leaves of some rows. Hashing a row of 2 kB and more lets other threads run."""
    begun, size = sha3.keccak_256(ROW_TAG + keccak256(tensor.name.encode())), tensor.row_bytes
    data, leaves = read_rows(tensor, first, end), []
    for row in range(end - first):
        # Not joined before: a row is not copied, and what all rows begin with is hashed once.
        leaf = begun.copy()
        leaf.update((first + row).to_bytes(4, "big"))
        leaf.update(data[row * size : (row + 1) * size])
        leaves.append(leaf.digest())
    return leaves


def _tensor_root(tensor: RawTensor, parts: Sequence[bytes]) -> bytes:
    tree = parts[0] if len(parts) == 1 else root_of_parts(parts, rows_of_a_piece(tensor))
    return tensor_hash(tensor.name, tensor.dtype, tensor.shape, tensor.rows, tree)


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
