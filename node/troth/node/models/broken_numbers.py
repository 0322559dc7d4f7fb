"""Weights that are no numbers in an engine: NaN, infinity, and what becomes infinite when it is rounded.

They are found in the bytes of the files, so that no checkpoint is refused for a dtype that numpy does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.node.errors import ModelError
from troth.node.models.tensor_files import REMEDY, RawTensor, pieces, read_rows


def _above(bits: int, largest: int) -> Callable[[memoryview], bool]:
    """Whether words without their sign are above a bound; of larger numbers words are larger, and NaN's most of all."""

    def broken(data: memoryview) -> bool:
        words: NDArray[Any] = np.frombuffer(data, dtype=f"<u{bits // 8}")
        return bool(((words & ((1 << (bits - 1)) - 1)) > largest).any())

    return broken


def _holds(word: int) -> Callable[[memoryview], bool]:
    def broken(data: memoryview) -> bool:
        return bool((np.frombuffer(data, dtype="u1") == word).any())

    return broken


WIDEST = 0x7F7F7FFF
"""The last float32 that bfloat16 can hold; what is above it becomes infinity in a class of bfloat16."""
NO_NUMBERS: Mapping[str, Callable[[memoryview], bool]] = {
    "F16": _above(16, 0x7BFF), "BF16": _above(16, 0x7F7F), "F32": _above(32, WIDEST), "C64": _above(32, WIDEST),
    "F64": _above(64, int(np.uint32(WIDEST).view(np.float32).astype(np.float64).view(np.uint64))),
    "F8_E4M3": _above(8, 0x7E), "F8_E5M2": _above(8, 0x7B), "F8_E4M3FNUZ": _holds(0x80), "F8_E5M2FNUZ": _holds(0x80),
    "F8_E8M0": _holds(0xFF),
}  # fmt: skip
"""Whether bytes hold what is no number in an engine: NaN, infinity, or what becomes infinite when it is rounded."""
SHARED_SCALES = "_scales"
"""Ends the names of MXFP4's exponents, which files hold as bytes without a type of their own."""
ZEROS = ".qzeros"
MIDDLE = frozenset({0x77777777, 0x88888888, 0x7F7F7F7F, 0x80808080})
"""Words of zero points in the middle, of 4 and 8 bits: as they are, or one too small, as GPTQ's first format has."""


def require_numbers(
    tensors: Sequence[RawTensor], progress: Callable[[int], None] = lambda size: None, *, method: str = ""
) -> None:
    """Raise ModelError naming the first tensor with a NaN or an infinity.

    Args:
        progress: is told bytes.
        method: of the quantisation, as config.json calls it.
    """
    for tensor in tensors:
        kind = tensor.dtype
        if kind == "U8" and method == "mxfp4" and tensor.name.endswith(SHARED_SCALES):
            kind = "F8_E8M0"
        broken = NO_NUMBERS.get(kind)
        for first, end in pieces(tensor) if broken is not None else ():
            if broken is not None and broken(read_rows(tensor, first, end)):
                raise ModelError("the weights hold NaN or infinity", f"{tensor.name} in {tensor.path.name}", REMEDY)
        if method == "gptq" and tensor.name.endswith(ZEROS):
            _require_middle(tensor)
        progress(tensor.length)


def _require_middle(tensor: RawTensor) -> None:
    """Raise ModelError where GPTQ's zero points are not those that symmetric numbers have: vLLM reads none, and other
    readers would make another model of them."""
    words = {
        int(one)
        for first, end in pieces(tensor)
        for one in set(np.frombuffer(read_rows(tensor, first, end), "<u4").tolist())
    }
    if len(words) != 1 or not words <= MIDDLE:
        told = f"{tensor.name} in {tensor.path.name}: {', '.join(f'{one:08x}' for one in sorted(words)[:4])}"
        raise ModelError("zero points are not in the middle, and quantization_config says that they are", told, REMEDY)
