"""What the contract needs beside a VRF proof, so that it can check points by their abscissas alone.

The library ``EcVrf`` states the equations. With t = c² modulo n the hints are, in this order: the ordinate of H and of
Γ; U and V; the abscissas of C = cΓ + tG, D = sH + tG and E = c(Γ + Y) + (t - s - 1)G; the inverse of c·s modulo n; the
slope of the chord through Γ and Y. One more follows for each counter that hashing to the curve skipped: the even root
of -f(x), which shows that f(x) is no square, or 0 where the hash is no field element.
"""

from __future__ import annotations

from troth.protocol import p256
from troth.protocol.errors import InvalidProof
from troth.protocol.p256 import GENERATOR, N, P, Point
from troth.protocol.vrf import open_proof

FIXED_HINTS = 11
"""Hints of a proof for which no counter was skipped."""


def hints(key: tuple[int, int], alpha: bytes, proof: bytes) -> list[int]:
    """The hints for a proof, each below 2^256; raises InvalidProof if it does not hold.

    A proof made on purpose with c = 0, s = 0 or a nonce of ±1 has none, although the RFC accepts it: InvalidProof too.
    """
    opened = open_proof(key, alpha, proof)
    shift = p256.generator_multiple(opened.challenge * opened.challenge)
    gamma_side = p256.add(p256.multiple(opened.gamma, opened.challenge), shift)
    hashed_side = p256.add(p256.multiple(opened.hashed, opened.scalar), shift)
    commitments = p256.add(p256.add(opened.commitment, opened.hashed_commitment), GENERATOR)
    key_side = p256.add(hashed_side, p256.negate(commitments))
    try:
        inverse = pow(opened.challenge * opened.scalar, -1, N)
        slope = (key[1] - opened.gamma.y) * pow(key[0] - opened.gamma.x, -1, P) % P
    except ValueError as error:
        raise _unhintable(proof) from error
    abscissas = [_abscissa(point, proof) for point in (gamma_side, hashed_side, key_side)]
    points = [*opened.commitment, *opened.hashed_commitment]
    witnesses = [_witness(value) for value in opened.skipped]
    return [opened.hashed.y, opened.gamma.y, *points, *abscissas, inverse, slope, *witnesses]


def _abscissa(point: Point | None, proof: bytes) -> int:
    if point is None:
        raise _unhintable(proof)
    return point.x


def _witness(value: int) -> int:
    """The even root of -f(value), which exists exactly where f(value) has none, since -1 has none modulo p."""
    if value >= P:
        return 0
    root = pow(-p256.cubic(value), (P + 1) // 4, P)
    return root if root % 2 == 0 else P - root


def _unhintable(proof: bytes) -> InvalidProof:
    return InvalidProof("The contract cannot check this proof", proof, "Prove again with RFC 6979's nonce.")
