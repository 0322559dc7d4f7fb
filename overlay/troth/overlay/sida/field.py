"""GF(256) with polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D, ISA-L's field), where addition is exclusive or.

A row of MULTIPLY is at the same time a table for `bytes.translate`, which multiplies a whole string by one element in a
fraction of a nanosecond a byte. Look-ups leave traces in the processor's cache: another tenant of the same machine
might see them; nobody on the network can.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

POLYNOMIAL = 0x11D
Matrix = tuple[tuple[int, ...], ...]


def _powers() -> list[int]:
    """x^0 … x^254; x generates the field's multiplicative group."""
    powers = [1]
    while len(powers) < 255:
        doubled = powers[-1] << 1
        powers.append(doubled ^ POLYNOMIAL if doubled > 0xFF else doubled)
    return powers


def _tables() -> tuple[tuple[bytes, ...], bytes]:
    powers = np.array(_powers(), dtype=np.uint8)
    logarithms = np.zeros(256, dtype=np.int64)
    logarithms[powers] = np.arange(255)
    products = powers[(logarithms[:, None] + logarithms[None, :]) % 255]
    products[0, :] = products[:, 0] = 0
    inverses = powers[-logarithms % 255]
    inverses[0] = 0
    return tuple(row.tobytes() for row in products), inverses.tobytes()


MULTIPLY, INVERSE = _tables()
"""MULTIPLY[a][b] is the product, INVERSE[a] the inverse; INVERSE[0] is 0 and means nothing."""


def add(left: bytes, right: bytes) -> bytes:
    """Sum of two strings of equal length, element by element."""
    return (np.frombuffer(left, np.uint8) ^ np.frombuffer(right, np.uint8)).tobytes()


def combination(weights: Sequence[int], strings: Sequence[bytes]) -> bytes:
    """The sum of `strings`, all of one length, each times its weight."""
    total = np.zeros(len(strings[0]), np.uint8)
    for weight, string in zip(weights, strings, strict=True):
        if weight:
            total ^= np.frombuffer(string.translate(MULTIPLY[weight]), np.uint8)
    return total.tobytes()


def inverse_of(matrix: Matrix) -> Matrix:
    """Inverse of a square matrix (Gauss and Jordan); raises ZeroDivisionError if there is none."""
    size = len(matrix)
    rows = [list(row) + [int(i == j) for j in range(size)] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = next((i for i in range(column, size) if rows[i][column]), None)
        if pivot is None:
            raise ZeroDivisionError("The matrix has no inverse")
        rows[column], rows[pivot] = rows[pivot], rows[column]
        scale = MULTIPLY[INVERSE[rows[column][column]]]
        rows[column] = [scale[value] for value in rows[column]]
        for i in range(size):
            if i != column and rows[i][column]:
                times = MULTIPLY[rows[i][column]]
                rows[i] = [value ^ times[above] for value, above in zip(rows[i], rows[column], strict=True)]
    return tuple(tuple(row[size:]) for row in rows)
