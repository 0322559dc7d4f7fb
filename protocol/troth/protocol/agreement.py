"""Agreement of two openings, element by element (VeriLLM, equation 29), in integers only.

Two numbers agree if sign and exponent are equal and the mantissas, cut to ``bits`` bits, differ by at most ``steps``.
The contract's library ``Agreement`` counts the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    counts = agreeing_counts([(first, second)], dtype, [(bits, steps)])
    return int(counts[0, 0]), len(first) // dtype.element_bytes


def agreeing_counts(
    pairs: Sequence[tuple[bytes, bytes]], dtype: Dtype, tolerances: Sequence[tuple[int, int]]
) -> NDArray[np.int64]:
    """Agreeing elements of each pair of openings under each of some (bits, steps), shape (pairs, tolerances).

    All openings have one length; raises InvalidOpening otherwise.
    """
    lengths = {len(data) for pair in pairs for data in pair}
    if len(lengths) != 1:
        raise InvalidOpening("Openings of several lengths are counted together", lengths, "Count them one by one.")
    format_ = f">u{dtype.element_bytes}"
    left, right = (
        np.frombuffer(b"".join(side), dtype=format_).astype(np.int64).reshape(len(pairs), -1)
        for side in zip(*pairs, strict=True)
    )
    precise = dtype.mantissa_bits
    same_scale = (left >> precise) == (right >> precise)
    fraction = (1 << precise) - 1
    left, right = left & fraction, right & fraction
    counts = []
    for bits, steps in tolerances:
        distance = np.abs((left >> (precise - bits)) - (right >> (precise - bits)))
        counts.append(np.count_nonzero(same_scale & (distance <= steps), axis=1))
    return np.stack(counts, axis=1)
