"""Nudges: what rounding may do to a row, made visible by a computation in which each state is moved by a little.

In a nudged trace each number of the state before a layer, and before the last norm, is multiplied by 1 + 2**-20 or
1 - 2**-20. The signs are bits of a hash over the signed result, so that nobody chose them when the prompt was written.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from troth.protocol.disputes.layout import NUDGES
from troth.protocol.errors import InvalidStep
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32

MORE, LESS = 0x3F800008, 0x3F7FFFF0
"""1 + 2**-20 and 1 - 2**-20, float32 bits."""
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Nudge:
    """One of a result's nudges: ``seed`` is the struct hash of the signed result, ``number`` from 1 to ``NUDGES``."""

    seed: Hash32
    number: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= NUDGES:
            raise InvalidStep(f"Nudges have numbers from 1 to {NUDGES}", self.number, "Take one of them.")

    def factor(self, layer: int, position: int, element: int) -> int:
        """By what a number is multiplied, float32 bits."""
        signs = int.from_bytes(self._signs(layer, position, element // _BLOCK))
        return MORE if signs >> element % _BLOCK & 1 else LESS

    def moved(self, layer: int, states: NDArray[np.float32]) -> NDArray[np.float32]:
        """The states before a layer, of shape (positions, hidden), each product rounded to float32."""
        positions, hidden = states.shape
        blocks = -(-hidden // _BLOCK)
        hashes = b"".join(
            self._signs(layer, position, block)[::-1] for position in range(positions) for block in range(blocks)
        )
        bits = np.unpackbits(np.frombuffer(hashes, np.uint8), bitorder="little").reshape(positions, -1)[:, :hidden]
        more, less = np.array([MORE, LESS], np.uint32).view(np.float32).astype(np.float64)
        # Products of two float32 numbers are exact in float64. A zero is +0 everywhere.
        with np.errstate(all="ignore"):
            found = (states.astype(np.float64) * np.where(bits == 1, more, less)).astype(np.float32) + np.float32(0)
        broken = np.array([0x7FC00000], np.uint32).view(np.float32)[0]
        kept: NDArray[np.float32] = np.where(np.isfinite(found), found, broken)
        return kept

    def _signs(self, layer: int, position: int, block: int) -> bytes:
        numbers = (self.number, layer, position, block)
        return keccak256(self.seed + b"".join(number.to_bytes(32, "big") for number in numbers))
