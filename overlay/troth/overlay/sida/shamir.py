"""Shamir's secret sharing over GF(256), byte by byte (A. Shamir, "How to share a secret", 1979).

Share `index` (from 0) is the polynomial's value at index + 1; the secret is its value at 0. Any k shares give the
secret; k−1 are independent of it, whatever the reader can compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from troth.overlay.sida.field import INVERSE, MULTIPLY


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
