"""The number formats that a trace can travel in."""

from __future__ import annotations

from enum import IntEnum


class Dtype(IntEnum):
    """A number format; the value is the code used on chain.

    bfloat16 numbers travel as uint16 arrays that hold their bit patterns, since numpy has no such type.
    """

    FLOAT32 = 0
    BFLOAT16 = 1

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is Dtype.FLOAT32 else 2

    @property
    def mantissa_bits(self) -> int:
        """Explicit bits of the mantissa; sign and the eight bits of the exponent stand before them."""
        return 23 if self is Dtype.FLOAT32 else 7

    @property
    def storage(self) -> str:
        """The numpy type that holds the elements in memory."""
        return "float32" if self is Dtype.FLOAT32 else "uint16"
