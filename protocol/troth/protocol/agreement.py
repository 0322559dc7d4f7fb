"""Agreement of two openings, element by element (VeriLLM, equation 29), in integers only.

Two numbers agree if sign and exponent are equal and the mantissas, cut to ``bits`` bits, differ by at most ``steps``.
The contract's library ``Agreement`` counts the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from troth.protocol.errors import InvalidField, InvalidOpening
from troth.protocol.tensors import Dtype

BASIS_POINTS = 10_000


@dataclass(frozen=True, slots=True)
class AgreementRule:
    """A class's tolerance: mantissa ``bits``, ``steps`` at that precision, share ``theta`` in basis points."""

    dtype: Dtype
    bits: int
    steps: int
    theta: int

    def __post_init__(self) -> None:
        if not 0 <= self.bits <= self.dtype.mantissa_bits:
            remedy = f"{self.dtype.name.lower()} has {self.dtype.mantissa_bits} mantissa bits."
            raise InvalidField("A rule compares more mantissa bits than there are", self.bits, remedy)

    def agrees(self, first: bytes, second: bytes) -> bool:
        """Whether two openings of equal, non-zero length agree; raises InvalidOpening as ``agreeing_elements`` does."""
        agreeing, total = agreeing_elements(first, second, self.dtype, self.bits, self.steps)
        return agreeing * BASIS_POINTS >= self.theta * total


def agreeing_elements(first: bytes, second: bytes, dtype: Dtype, bits: int, steps: int) -> tuple[int, int]:
    """Agreeing elements and all elements of two openings: big-endian numbers in a whole number of 32-byte words.

    Raises InvalidOpening if the lengths differ, are zero or not whole words.
    """
    if len(first) != len(second) or len(first) % 32 or not first:
        remedy = "Compare openings of the same tiles, a whole number of 32-byte words."
        raise InvalidOpening("Two openings cannot be compared", (len(first), len(second)), remedy)
    format_ = f">u{dtype.element_bytes}"
    left, right = (np.frombuffer(data, dtype=format_).astype(np.int64) for data in (first, second))
    precise = dtype.mantissa_bits
    same_scale = (left >> precise) == (right >> precise)
    fraction = (1 << precise) - 1
    distance = np.abs(((left & fraction) >> (precise - bits)) - ((right & fraction) >> (precise - bits)))
    return int(np.count_nonzero(same_scale & (distance <= steps))), len(left)
