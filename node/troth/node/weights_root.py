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

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import sha3
from numpy.typing import NDArray

from troth.node.errors import ModelError
from troth.node.models.tensor_files import PIECE, RawTensor, opened_rows, read_rows
from troth.protocol.architecture import canonical_json
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32
from troth.protocol.weight_rows import EMPTY, ROW_TAG, model_hash, tensor_hash, tree_root

ROW_TAG_1 = keccak256(b"troth/weight-row/1")
TENSOR_TAG_1 = keccak256(b"troth/weight-tensor/1")
WEIGHTS_TAG_1 = keccak256(b"troth/weights/1")
THREADS = 2
BLOCK = 1 << 18
"""Bytes of rows that are read at a time, and whose part of the tree is built at once. What was read is still in the
processor's own cache when it is hashed. And no thread has the interpreter for longer than a tree of so few rows takes:
one that built a whole tensor's would keep the others waiting, who need it between two rows."""
SHARES = 4
"""Pieces for each thread that the rest is cut into, towards the end: so all threads end at about one time."""

Progress = Callable[[int], None]
Piece = tuple[RawTensor, int, int]
"""Rows of a tensor, first and end."""


def weights_root(
    tensors: Sequence[RawTensor],
    quantisation: Mapping[str, Any] | None,
    progress: Progress = lambda size: None,
    threads: int = THREADS,
) -> Hash32:
    """Version 2 over all tensors of a model, of names that are all different; `progress` is told bytes.

    Memory is bounded: 32 bytes a block of one tensor, and some blocks of the files at a time.
    """
    roots = tensor_roots(tensors, progress, threads)
    tree = tree_root([roots[name] for name in sorted(roots)])
    return model_hash(settings_hash(quantisation), len(roots), tree)


def tensor_roots(
    tensors: Sequence[RawTensor], progress: Progress = lambda size: None, threads: int = THREADS
) -> dict[str, bytes]:
    """Version 2's root of each tensor by its name."""
    roots: dict[str, bytes] = {}
    blocks: list[bytes] = []
    with ThreadPoolExecutor(threads, thread_name_prefix="weights-root") as pool:
        for (tensor, first, end), found in _in_turn(pool, _pieces(tensors, SHARES * threads), 2 * threads):
            blocks.extend(found)
            progress((end - first) * tensor.row_bytes)
            if end == tensor.rows:
                # Meanwhile the threads are at the next tensor.
                roots[tensor.name], blocks = _root_of_blocks(tensor, blocks), []
    return roots


def settings_hash(quantisation: Mapping[str, Any] | None) -> bytes:
    """What a weights root binds of a checkpoint's settings."""
    return keccak256(b"" if quantisation is None else canonical_json(quantisation))


def _pieces(tensors: Sequence[RawTensor], shares: int) -> Iterator[Piece]:
    """All tensors in order, in pieces of whole blocks, of which the last ones are a share of what is left."""
    left = sum(tensor.length for tensor in tensors)
    for tensor in tensors:
        size, first = _block_rows(tensor), 0
        while first < tensor.rows:
            count = max(1, min(PIECE, left // shares) // max(1, size * tensor.row_bytes))
            end = min(first + count * size, tensor.rows)
            yield tensor, first, end
            left -= (end - first) * tensor.row_bytes
            first = end


def _in_turn(pool: ThreadPoolExecutor, given: Iterable[Piece], ahead: int) -> Iterator[tuple[Piece, list[bytes]]]:
    """What comes of all pieces in order, of which `ahead` are under way at a time."""
    waiting: deque[tuple[Piece, Future[list[bytes]]]] = deque()
    for piece in given:
        waiting.append((piece, pool.submit(_block_roots, *piece)))
        if len(waiting) >= ahead:
            done, future = waiting.popleft()
            yield done, future.result()
    for done, future in waiting:
        yield done, future.result()


def _block_rows(tensor: RawTensor) -> int:
    """Rows of a block: a power of two, no more than the tensor's tree has leaves."""
    rows = BLOCK // max(1, tensor.row_bytes)
    return min(1 << max(0, rows.bit_length() - 1), 1 << (tensor.rows - 1).bit_length())


def _block_roots(tensor: RawTensor, first: int, end: int) -> list[bytes]:
    """The trees of blocks of rows; one that the tensor's last rows do not fill is padded as all trees are."""
    size, begun, roots = _block_rows(tensor), _begun(tensor), []
    with opened_rows(tensor) as read:
        for start in range(first, end, size):
            stop = min(start + size, end)
            leaves = _leaves(begun, start, read(start, stop), tensor.row_bytes, stop - start)
            roots.append(tree_root([*leaves, *[EMPTY] * (size - len(leaves))]))
    return roots


def _root_of_blocks(tensor: RawTensor, blocks: Sequence[bytes]) -> bytes:
    """A tensor's root by the trees of its blocks."""
    empty = tree_root([EMPTY] * _block_rows(tensor))
    tree = tree_root([*blocks, *[empty] * ((1 << (len(blocks) - 1).bit_length()) - len(blocks))])
    return tensor_hash(tensor.name, tensor.dtype, tensor.shape, tensor.rows, tree)


def row_leaves(tensor: RawTensor, first: int, end: int) -> list[bytes]:
    """The leaves of some rows."""
    return _leaves(_begun(tensor), first, read_rows(tensor, first, end), tensor.row_bytes, end - first)


def _begun(tensor: RawTensor) -> Any:
    """What all rows of a tensor begin with, hashed once."""
    return sha3.keccak_256(ROW_TAG + keccak256(tensor.name.encode()))


def _leaves(begun: Any, first: int, data: memoryview, size: int, count: int) -> list[bytes]:
    """Of so many rows of `size` bytes, from row `first` on. Hashing a row of 2 kB and more lets other threads run."""
    leaves = []
    for place in range(count):
        # Not joined before, so that a row is not copied.
        leaf = begun.copy()
        leaf.update((first + place).to_bytes(4, "big"))
        leaf.update(data[place * size : (place + 1) * size])
        leaves.append(leaf.digest())
    return leaves


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
