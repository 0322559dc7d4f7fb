"""What safetensors files hold, read from their bytes: name, dtype and shape of each tensor, and where it lies.

The format is 8 bytes of length, little-endian, a JSON header of that length, and the tensors' bytes. Headers are read
here and not by a library, so that every dtype there is has a place, those of quantised checkpoints too, and so that a
file that contradicts itself, another file or the index of its folder is named before anything is computed from it.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.node.errors import ModelError
from troth.node.models.texts import read_object, without_doubles

INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
HEADER_LIMIT = 100 << 20
"""Bytes of a header, as in the format's own library."""
BITS: Mapping[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip
"""Of one element; other dtypes are taken as they come."""
ROW_BYTES = 512
"""A row is the shortest run of trailing dimensions that holds as much: a matrix's row in all but tiny models, and no
leaf for each of sixteen bytes where experts are packed in four dimensions."""
REMEDY = "Fetch the model again from its source."
LONGEST_NAME = 250
MOST_TENSORS = 1 << 19
"""Several times those of the largest mixtures of experts; a header of nothing else could name millions."""
PIECE = 4 << 20
BLOCK = 256 << 10
"""Bytes that are read and hashed before others are: so many stay in a core's own cache meanwhile."""
_kept = threading.local()


@dataclass(frozen=True, slots=True)
class RawTensor:
    """`length` bytes from `start` of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    start: int
    length: int

    @property
    def rows(self) -> int:
        """How many rows it is cut into; a scalar, a vector and an empty tensor are one."""
        for place in range(len(self.shape) - 1, 0, -1):
            count = math.prod(self.shape[:place])
            if count and self.length % count == 0 and self.length // count >= ROW_BYTES:
                return count
        return 1

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.length // self.rows


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model, sorted by name: those of the index where there is one.

    Without an index, a second copy in another layout (`consolidated…`) is left out if there are other files.
    """
    index = folder / INDEX
    if index.is_file():
        return sorted({folder / name for name in read_index(index).values()})
    found = sorted(folder.glob("*.safetensors"))
    first = [path for path in found if not path.name.startswith("consolidated")]
    return first or found


def read_index(path: Path) -> dict[str, str]:
    """File by tensor; raises ModelError where it names anything but files beside it."""
    try:
        placed = read_object(path)["weight_map"]
    except KeyError as error:
        raise ModelError("the index of the weights cannot be read", str(path), REMEDY) from error
    if not isinstance(placed, dict) or not placed:
        raise ModelError("the index of the weights places no tensors", str(path), REMEDY)
    for name in placed.values():
        if not _is_name(name) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelError("the index places tensors outside of the folder", str(name)[:LONGEST_NAME], REMEDY)
    return placed


def raw_tensors(folder: Path) -> list[RawTensor]:
    """All tensors of a model, sorted by name.

    Raises:
        ModelError: a file is damaged, a tensor is there twice, or the files are not what the index says.
    """
    found: dict[str, RawTensor] = {}
    for path in weight_files(folder):
        if not path.is_file():
            what = "this is no file, as a model's are" if path.exists() else "a file of the weights is missing"
            raise ModelError(what, path.name, REMEDY)
        for tensor in _read_header(path):
            if tensor.name in found:
                places = f"{tensor.name} in {found[tensor.name].path.name} and {path.name}"
                raise ModelError("a tensor is there twice", places, REMEDY)
            found[tensor.name] = tensor
        if len(found) > MOST_TENSORS:
            raise ModelError(f"the model has more than {MOST_TENSORS} tensors", len(found), REMEDY)
    if not found:
        raise ModelError("the model has no tensors", str(folder), "Point to a folder with *.safetensors files.")
    index = folder / INDEX
    if index.is_file():
        _require_index(read_index(index), found)
    return [found[name] for name in sorted(found)]


def _require_index(placed: Mapping[str, str], found: Mapping[str, RawTensor]) -> None:
    where = {name: tensor.path.name for name, tensor in found.items()}
    if differing := sorted(name for name in {*placed, *where} if placed.get(name) != where.get(name)):
        name = differing[0]
        says = f"{name}: the index says {placed.get(name)}, it is in {where.get(name)}; {len(differing)} in all"
        raise ModelError("the files are not what their index says", says, REMEDY)


def _read_header(path: Path) -> list[RawTensor]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(HEADER_LIMIT, size - 8):
            raise ModelError("a file is not safetensors, or was cut short", path.name, REMEDY)
        raw = file.read(length)
    try:
        header = json.loads(raw, object_pairs_hook=without_doubles)
    except (ValueError, RecursionError) as error:
        raise ModelError("the header of a file cannot be read", f"{path.name}: {error}", REMEDY) from error
    if not isinstance(header, dict):
        raise ModelError("the header of a file is not an object", path.name, REMEDY)
    if len(header) > MOST_TENSORS:
        raise ModelError(f"a file has more than {MOST_TENSORS} tensors", f"{path.name}: {len(header)}", REMEDY)
    begin = 8 + length
    tensors = [_tensor(name, told, path, begin) for name, told in header.items() if name != "__metadata__"]
    end = begin
    for tensor in sorted(tensors, key=lambda one: (one.start, one.length)):
        if tensor.start != end:
            raise ModelError("tensors overlap, or leave bytes out", f"{tensor.name} in {path.name}", REMEDY)
        end += tensor.length
    if end != size:
        raise ModelError("a file is longer or shorter than its header says", f"{path.name}: {size}, not {end}", REMEDY)
    return tensors


def _is_name(name: Any) -> bool:
    """Whether it can be hashed, and shown on a terminal."""
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()


def _tensor(name: str, told: Any, path: Path, begin: int) -> RawTensor:
    try:
        dtype, shape, (first, end) = str(told["dtype"]), tuple(told["shape"]), told["data_offsets"]
        whole = all(type(number) is int and 0 <= number < 1 << 48 for number in (*shape, first, end))
    except (KeyError, TypeError, ValueError):
        whole, dtype, shape, first, end = False, "", (), 0, 0
    if not whole or end < first or len(shape) > 16 or not (_is_name(name) and _is_name(dtype)):
        raise ModelError("the header of a file describes no tensor", f"{name[:80]!a} in {path.name}", REMEDY)
    bits = BITS.get(dtype)
    if bits is not None and -(-math.prod(shape) * bits // 8) != end - first:
        what = f"{name} in {path.name}: {end - first} bytes for {dtype} {list(shape)}"
        raise ModelError("a tensor has another size than its shape", what, REMEDY)
    return RawTensor(name, dtype, shape, path, begin + first, end - first)


def rows_of_a_piece(tensor: RawTensor) -> int:
    """A power of two, so that each piece is a whole part of the tensor's tree."""
    return 1 << (max(1, PIECE // max(1, tensor.row_bytes)).bit_length() - 1)


def pieces(tensor: RawTensor) -> Iterator[tuple[int, int]]:
    """Rows of a tensor, first and end, in pieces of some megabytes."""
    step = rows_of_a_piece(tensor)
    for first in range(0, tensor.rows, step):
        yield first, min(first + step, tensor.rows)


def read_rows(tensor: RawTensor, first: int, end: int) -> memoryview:
    """The bytes of some rows, until this thread reads the next; raises ModelError where the file has become shorter."""
    size = (end - first) * tensor.row_bytes
    if len(getattr(_kept, "room", ())) <= size:
        # Kept, since memory that is new costs as much as a tenth of the hashing.
        _kept.room = bytearray(max(size + 1, PIECE))
    data = memoryview(_kept.room)[:size]
    with tensor.path.open("rb", buffering=0) as file:
        if os.preadv(file.fileno(), [data], tensor.start + first * tensor.row_bytes) != size:
            raise _cut(tensor)
    return data


def row_blocks(tensor: RawTensor, first: int, end: int) -> Iterator[memoryview]:
    """The bytes of each row in turn, until the next is asked for; raises ModelError where the file became shorter."""
    size = tensor.row_bytes
    rows = max(1, BLOCK // max(1, size))
    room = memoryview(bytearray(min(rows, end - first) * size))
    with tensor.path.open("rb", buffering=0) as file:
        for start in range(first, end, rows):
            count = min(rows, end - start)
            block = room[: count * size]
            if os.preadv(file.fileno(), [block], tensor.start + start * size) != len(block):
                raise _cut(tensor)
            for place in range(0, count):
                yield block[place * size : (place + 1) * size]


def _cut(tensor: RawTensor) -> ModelError:
    return ModelError("a file was cut while it was read", tensor.path.name, REMEDY)
