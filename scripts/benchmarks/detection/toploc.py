"""The peer: TOPLOC (Ong et al. 2025), reimplemented from its paper.

The compiled part of its package is built for another torch than ours. A proof holds, for every 32 rows, the 128
largest elements of the last hidden states in bfloat16, as a polynomial over GF(65497) through (index, bits). A verifier
evaluates it at the 128 largest elements of its own states and looks at exponents and mantissas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIELD = 65_497
TOP, CHUNK = 128, 32
EXPONENTS, MEAN, MEDIAN = 38, 10.0, 8.0
"""The paper's bfloat16 thresholds: mismatching exponents at most, mean and median mantissa difference at most."""
MANTISSA_BITS = 7
Words = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Proof:
    """One chunk: the modulus that keeps its indices apart, and the polynomial's coefficients in Newton's form."""

    modulus: int
    nodes: NDArray[np.int64]
    coefficients: NDArray[np.int64]

    @property
    def size(self) -> int:
        """Bytes: the modulus and 128 coefficients of two bytes each, as its authors encode it."""
        return 2 + 2 * len(self.coefficients)


def build(rows: Words, prompt: int) -> list[Proof]:
    """Proofs of a trace (positions x hidden size, bfloat16 words): one of the prompt, then one for every 32 rows."""
    return [_proof(chunk) for chunk in _chunks(rows, prompt)]


def accepts(proofs: list[Proof], rows: Words, prompt: int) -> bool:
    """Whether a verifier with its own rows accepts every chunk."""
    chunks = list(_chunks(rows, prompt))
    return len(chunks) == len(proofs) and all(_close(proof, chunk) for proof, chunk in zip(proofs, chunks, strict=True))


def _chunks(rows: Words, prompt: int) -> Iterator[Words]:
    yield rows[:prompt].ravel()
    for start in range(prompt, len(rows), CHUNK):
        yield rows[start : start + CHUNK].ravel()


def _largest(chunk: Words) -> NDArray[Any]:
    # bfloat16 magnitudes are ordered as their bits without the sign are.
    return np.argsort(chunk & 0x7FFF, kind="stable")[: -TOP - 1 : -1].astype(np.int64)


def _proof(chunk: Words) -> Proof:
    indices = _largest(chunk)
    modulus = next(m for m in range(FIELD, 1 << 15, -1) if len(np.unique(indices % m)) == len(indices))
    nodes, values = indices % modulus, chunk[indices].astype(np.int64) % FIELD
    coefficients = values.copy()
    for order in range(1, len(nodes)):
        rise = (coefficients[order:] - coefficients[order - 1 : -1]) % FIELD
        coefficients[order:] = rise * _inverse((nodes[order:] - nodes[:-order]) % FIELD) % FIELD
    return Proof(modulus, nodes, coefficients)


def _inverse(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fermat's inverse, all at once."""
    result, base, power = np.ones_like(values), values % FIELD, FIELD - 2
    while power:
        if power & 1:
            result = result * base % FIELD
        base, power = base * base % FIELD, power >> 1
    return result


def _evaluate(proof: Proof, points: NDArray[np.int64]) -> NDArray[np.int64]:
    result = np.zeros_like(points)
    for node, coefficient in zip(proof.nodes[::-1], proof.coefficients[::-1], strict=True):
        result = (result * (points - node) + coefficient) % FIELD
    return result


def _close(proof: Proof, chunk: Words) -> bool:
    indices = _largest(chunk)
    claimed, own = _evaluate(proof, indices % proof.modulus), chunk[indices].astype(np.int64)
    same = claimed >> MANTISSA_BITS == own >> MANTISSA_BITS
    if int((~same).sum()) > EXPONENTS:
        return False
    mask = (1 << MANTISSA_BITS) - 1
    apart = np.abs((claimed[same] & mask) - (own[same] & mask))
    return float(apart.mean()) <= MEAN and float(np.median(apart)) <= MEDIAN
