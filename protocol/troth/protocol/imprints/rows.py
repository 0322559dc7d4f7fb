"""Rows as a circuit weighs them: rounded to 20 bits of magnitude under one scale, and the imprint of such a row.

A number is (-1)**negative x magnitude x 2**(scale - c), rounded towards zero. c is 44 for a state, whose numbers are
below 2**39 then, and 63 for a row of the head, whose numbers are below 2**20. The scale is the least that holds the
largest number, from 0 to 63. So what rounding took is below one unit, 2**(scale - c), and a proof counts it.

The imprint: codes magnitude + 2**20 x negative stand by twelves in elements of the field, 21 bits each, the first one
lowest. Elements are hashed by fours, each hash taking the one before: h = Poseidon(h, a, b, c, d), and the first h is
the scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import InvalidNumbers
from troth.protocol.hashing import keccak256
from troth.protocol.imprints.poseidon import FIELD, poseidon
from troth.protocol.types import Hash32
from troth.protocol.weight_rows import tree_path, tree_root

MAGNITUDE_BITS = 20
MOST_SCALE = 63
NUMBERS, ELEMENTS = 12, 4
"""Numbers of an element, and elements of a hash."""
LEVELS = 18
"""Of a head's tree: 262,144 tokens at most."""


class RowKind(IntEnum):
    """What a row is; the value is c."""

    STATE = 44
    WEIGHTS = 63


@dataclass(frozen=True, slots=True)
class RoundedRow:
    """A row's numbers as whole ones."""

    magnitudes: NDArray[np.int64]
    negative: NDArray[np.int64]
    scale: int

    @property
    def numbers(self) -> NDArray[np.int64]:
        """With their signs; in units of 2**(scale - c)."""
        signed: NDArray[np.int64] = self.magnitudes * (1 - 2 * self.negative)
        return signed

    def imprint(self) -> int:
        """An element of the field."""
        found, codes = self.scale, (self.magnitudes + (self.negative << MAGNITUDE_BITS)).tolist()
        codes += [0] * (-len(codes) % (NUMBERS * ELEMENTS))
        elements = [_packed(codes[first : first + NUMBERS]) for first in range(0, len(codes), NUMBERS)]
        for first in range(0, len(elements), ELEMENTS):
            found = poseidon([found, *elements[first : first + ELEMENTS]])
        return found


def round_row(numbers: NDArray[np.float32], kind: RowKind) -> RoundedRow:
    """A row of float32, or of narrower numbers widened; raises InvalidNumbers for what is infinite or too large."""
    wide = np.abs(numbers.astype(np.float64))
    largest = float(wide.max(initial=0.0))
    if not np.isfinite(largest):
        raise InvalidNumbers("A row holds what is no number", largest, "It is shown as it is, and convicts.")
    # largest < 2**exponent, the least such.
    exponent = int(np.frexp(largest)[1]) if largest else -kind
    scale = max(exponent + kind - MAGNITUDE_BITS, 0)
    if scale > MOST_SCALE:
        raise InvalidNumbers(f"A number is 2**{MOST_SCALE - kind + MAGNITUDE_BITS} or larger", largest, "Show the row.")
    magnitudes = np.floor(np.ldexp(wide, kind - scale)).astype(np.int64)
    return RoundedRow(magnitudes, np.signbit(numbers).astype(np.int64), scale)


# --------------------------------------------------------------------------------------- what a node signs of an answer


def imprints_leaf(imprint: int) -> bytes:
    """The leaf of a row's imprint in the tree of an answer."""
    return keccak256(b"\x00" + imprint.to_bytes(32, "big"))


def imprints_root(imprints: Sequence[int]) -> Hash32:
    """The root over the imprints of the rows that chose an answer's tokens."""
    return Hash32(tree_root([imprints_leaf(one) for one in imprints]))


def imprints_path(imprints: Sequence[int], index: int) -> tuple[Hash32, ...]:
    """The way of one of them to it."""
    return tree_path([imprints_leaf(one) for one in imprints], index)


# ------------------------------------------------------------------------------------------------------ a model's head


class HeadTree:
    """The tree over the imprints of a head's rows, padded by zeros; a node is Poseidon(left, right)."""

    def __init__(self, imprints: Sequence[int], levels: int = LEVELS) -> None:
        if not 0 < len(imprints) <= 1 << levels:
            raise InvalidNumbers(f"A head has at most {1 << levels} rows", len(imprints), "It has no imprints.")
        self.levels, self._rows = levels, [list(imprints)]
        self._empty = [0]
        for _ in range(levels):
            below, empty = self._rows[-1], self._empty[-1]
            padded = [*below, empty] if len(below) % 2 else below
            self._rows.append([poseidon(padded[at : at + 2]) for at in range(0, len(padded), 2)])
            self._empty.append(poseidon([empty, empty]))

    @property
    def root(self) -> int:
        """What a class names."""
        return self._rows[-1][0]

    def path(self, place: int) -> list[int]:
        """Siblings of a row, from the bottom."""
        siblings = []
        for level in range(self.levels):
            beside, row = place ^ 1, self._rows[level]
            siblings.append(row[beside] if beside < len(row) else self._empty[level])
            place >>= 1
        return siblings


def _packed(codes: Sequence[int]) -> int:
    value = 0
    for code in reversed(codes):
        value = value << (MAGNITUDE_BITS + 1) | code
    assert value < FIELD
    return value
