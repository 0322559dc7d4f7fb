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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.errors import ModelError

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
PIECE = 4 << 20


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
        placed = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError("the index of the weights cannot be read", str(path), REMEDY) from error
    if not isinstance(placed, dict) or not placed:
        raise ModelError("the index of the weights places no tensors", str(path), REMEDY)
    for name in placed.values():
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelError("the index places tensors outside of the folder", name, REMEDY)
    return placed


def raw_tensors(folder: Path) -> list[RawTensor]:
    """All tensors of a model, sorted by name.

    Raises:
        ModelError: a file is damaged, a tensor is there twice, or the files are not what the index says.
    """
    found: dict[str, RawTensor] = {}
    for path in weight_files(folder):
        if not path.is_file():
            raise ModelError("a file of the weights is missing", path.name, REMEDY)
        for tensor in _read_header(path):
            if tensor.name in found:
                places = f"{tensor.name} in {found[tensor.name].path.name} and {path.name}"
                raise ModelError("a tensor is there twice", places, REMEDY)
            found[tensor.name] = tensor
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
        header = json.loads(raw, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise ModelError("the header of a file cannot be read", f"{path.name}: {error}", REMEDY) from error
    if not isinstance(header, dict):
        raise ModelError("the header of a file is not an object", path.name, REMEDY)
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


def _without_doubles(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name is there twice")
    return made


def _tensor(name: str, told: Any, path: Path, begin: int) -> RawTensor:
    try:
        dtype, shape, (first, end) = str(told["dtype"]), tuple(told["shape"]), told["data_offsets"]
        whole = all(type(number) is int and 0 <= number < 1 << 48 for number in (*shape, first, end))
    except (KeyError, TypeError, ValueError):
        whole, dtype, shape, first, end = False, "", (), 0, 0
    if not whole or end < first or len(shape) > 16:
        raise ModelError("the header of a file describes no tensor", f"{name[:80]} in {path.name}", REMEDY)
    bits = BITS.get(dtype)
    if bits is not None and -(-math.prod(shape) * bits // 8) != end - first:
        what = f"{name} in {path.name}: {end - first} bytes for {dtype} {list(shape)}"
        raise ModelError("a tensor has another size than its shape", what, REMEDY)
    return RawTensor(name, dtype, shape, path, begin + first, end - first)


def pieces(tensor: RawTensor) -> Iterator[tuple[int, int]]:
    """Rows of a tensor, first and end, in pieces of some megabytes."""
    step = max(1, PIECE // max(1, tensor.row_bytes))
    for first in range(0, tensor.rows, step):
        yield first, min(first + step, tensor.rows)


_kept = threading.local()


def read_rows(tensor: RawTensor, first: int, end: int) -> memoryview:
    """The bytes of some rows, until this thread reads the next; raises ModelError where the file has become shorter."""
    size = (end - first) * tensor.row_bytes
    if len(getattr(_kept, "room", ())) <= size:
        # Kept, since memory that is new costs as much as a tenth of the hashing.
        _kept.room = bytearray(max(size + 1, PIECE))
    data = memoryview(_kept.room)[:size]
    with tensor.path.open("rb", buffering=0) as file:
        if os.preadv(file.fileno(), [data], tensor.start + first * tensor.row_bytes) != size:
            raise ModelError("a file was cut while it was read", tensor.path.name, REMEDY)
    return data


def _exponents_of(bits: int, mask: int) -> Callable[[memoryview], bool]:
    def broken(data: memoryview) -> bool:
        words: NDArray[Any] = np.frombuffer(data, dtype=f"<u{bits // 8}")
        return bool(((words & mask) == mask).any())

    return broken


NO_NUMBERS: Mapping[str, Callable[[memoryview], bool]] = {
    "F16": _exponents_of(16, 0x7C00), "BF16": _exponents_of(16, 0x7F80), "F32": _exponents_of(32, 0x7F800000),
    "F64": _exponents_of(64, 0x7FF0000000000000), "F8_E4M3": _exponents_of(8, 0x7F), "F8_E5M2": _exponents_of(8, 0x7C),
    "F8_E8M0": _exponents_of(8, 0xFF),
}  # fmt: skip
"""Whether bytes hold what is no number: an exponent of ones, in most formats infinity or NaN."""


def require_numbers(tensors: Sequence[RawTensor], progress: Callable[[int], None] = lambda size: None) -> None:
    """Raise ModelError naming the first tensor with a NaN or an infinity; `progress` is told bytes."""
    for tensor in tensors:
        broken = NO_NUMBERS.get(tensor.dtype)
        for first, end in pieces(tensor) if broken is not None else ():
            if broken is not None and broken(read_rows(tensor, first, end)):
                raise ModelError("the weights hold NaN or infinity", f"{tensor.name} in {tensor.path.name}", REMEDY)
        progress(tensor.length)
