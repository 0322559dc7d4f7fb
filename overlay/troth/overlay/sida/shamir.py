"""Shamir's secret sharing over GF(256), byte by byte (A. Shamir, "How to share a secret", 1979).

A row of MULTIPLY is at the same time a table for `bytes.translate`, which multiplies a whole string by one element in a
fraction of a nanosecond a byte. Look-ups leave traces in the processor's cache: another tenant of the same machine
might see them; nobody on the network can.

Share `index` (from 0) is the polynomial's value at index + 1; the secret is its value at 0. Any k shares give the
secret; k−1 are independent of it, whatever the reader can compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

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


def split(secret: bytes, n: int, k: int, randomness: bytes) -> list[bytes]:
    """n shares, each as long as the secret. `randomness`: k−1 times as many fresh bytes, never used again."""
    size = len(secret)
    if len(randomness) != (k - 1) * size:
        raise ValueError(f"{k - 1} coefficients of {size} bytes are needed, {len(randomness)} bytes were given")
    total = int.from_bytes(secret * n, "little")
    for power, at in enumerate(range(0, len(randomness), size), 1):
        coefficient = randomness[at : at + size]
        terms = b"".join([coefficient.translate(table) for table in _power_tables(n, power)])
        total ^= int.from_bytes(terms, "little")
    shares = total.to_bytes(n * size, "little")
    return [shares[at : at + size] for at in range(0, n * size, size)]


@lru_cache(maxsize=1024)
def _power_tables(n: int, power: int) -> tuple[bytes, ...]:
    """Tables that multiply by point ** power, for points 1 … n."""
    factors = [1] * n
    for _ in range(power):
        factors = [MULTIPLY[point][factor] for point, factor in enumerate(factors, 1)]
    return tuple(MULTIPLY[factor] for factor in factors)


def combine(shares: Mapping[int, bytes], k: int) -> bytes:
    """The secret, from k of the shares by index; a wrong share gives a wrong secret and no error."""
    if len(shares) < k:
        raise ValueError(f"{k} shares are needed, {len(shares)} were given")
    indices = tuple(sorted(shares)[:k])
    total, size = 0, len(shares[indices[0]])
    for index, weight in zip(indices, _weights(indices), strict=True):
        total ^= int.from_bytes(shares[index].translate(MULTIPLY[weight]), "little")
    return total.to_bytes(size, "little")


@lru_cache(maxsize=1024)
def _weights(indices: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's basis at 0: the product of x_m / (x_m − x_j) over m ≠ j."""
    points = [index + 1 for index in indices]
    weights = []
    for point in points:
        weight = 1
        for other in points:
            if other != point:
                weight = MULTIPLY[weight][MULTIPLY[other][INVERSE[other ^ point]]]
        weights.append(weight)
    return tuple(weights)
