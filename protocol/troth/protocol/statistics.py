"""The four statistics of VeriLLM section 7.1, in the reading measured for Troth.

A verifier logs them with every verdict over rows. They decide nothing: the paper's cuts reject almost every honest
bfloat16 run (docs/reference/protocol.md, "Comparing").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import InvalidStates
from troth.protocol.tensors import Dtype, RowArray, widen

BLOCK_ROWS = 1024
"""Rows compared at a time, which bounds memory."""
MANTISSA_STEPS = 7
"""e_m of the paper: differences of the top seven mantissa bits up to this count as small."""


@dataclass(frozen=True, slots=True)
class PaperStatistics:
    """Shares in 0..1 and a mean.

    ``exponent_mismatch`` (Pe): elements whose exponents differ. ``large_deviation`` (Pm): of those, the share whose top
    seven mantissa bits differ by more than seven steps (1 if there are none). ``small_deviation`` (Pw): of the others,
    the share within seven steps (0 if there are none). ``mean_error`` (e): mean of claimed minus reference.
    """

    exponent_mismatch: float
    large_deviation: float
    small_deviation: float
    mean_error: float


def paper_statistics(claimed: RowArray, reference: RowArray, dtype: Dtype) -> PaperStatistics:
    """The statistics over all elements of two equally shaped, finite arrays of ``dtype``; raises InvalidStates."""
    if claimed.shape != reference.shape or claimed.size == 0:
        raise InvalidStates("States to compare need one shape", (claimed.shape, reference.shape), "Send every row.")
    mismatches = large = small = 0
    error = 0.0
    for start in range(0, len(claimed), BLOCK_ROWS):
        ours, theirs = reference[start : start + BLOCK_ROWS], claimed[start : start + BLOCK_ROWS]
        differs, near = _compare(theirs, ours, dtype)
        mismatches += int(differs.sum())
        large += int((differs & ~near).sum())
        small += int((~differs & near).sum())
        error += float((widen(theirs, dtype).astype(np.float64) - widen(ours, dtype)).sum())
    matches = claimed.size - mismatches
    return PaperStatistics(
        exponent_mismatch=mismatches / claimed.size,
        large_deviation=large / mismatches if mismatches else 1.0,
        small_deviation=small / matches if matches else 0.0,
        mean_error=error / claimed.size,
    )


def _compare(claimed: RowArray, reference: RowArray, dtype: Dtype) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Per element: whether the exponents differ, and whether the mantissas are within the paper's steps."""
    claimed_exponent, claimed_top = _fields(claimed, dtype)
    reference_exponent, reference_top = _fields(reference, dtype)
    return claimed_exponent != reference_exponent, np.abs(claimed_top - reference_top) <= MANTISSA_STEPS


def _fields(rows: RowArray, dtype: Dtype) -> tuple[RowArray, RowArray]:
    """Exponent field and top seven mantissa bits of each element."""
    if rows.dtype != np.dtype(dtype.storage):
        raise InvalidStates(f"States of this class are {dtype.storage} arrays", str(rows.dtype), "Convert them first.")
    bits: NDArray[Any] = np.ascontiguousarray(rows).view(np.uint32 if dtype is Dtype.FLOAT32 else np.uint16)
    exponent = (bits >> dtype.mantissa_bits) & 0xFF
    top = (bits >> (dtype.mantissa_bits - 7)) & 0x7F
    return exponent.astype(np.int16), top.astype(np.int16)
