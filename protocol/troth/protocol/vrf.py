"""ECVRF-P256-SHA256-TAI: RFC 9381 with suite 0x01, nonces by RFC 6979.

A proof is 81 bytes: Γ compressed (33), c (16), s (32). The output belongs to the key and the input alone, so use it,
never the bytes of a proof, as an identifier.

Time and secrets. Multiplications by the secret and by the nonce run in OpenSSL, in constant time, as do the HMACs that
derive the nonce. The one product s = k + c·x modulo n is taken on Python integers of fixed size, and so are, where
multiples go by ECDH, the successors of both; their time is not guarded to the last cycle, so do not let strangers time
a proof on the same core. Hashing to the curve takes time that depends on the input, which is public here. Verification
handles no secrets. A derived key stays in memory as long as it is among the last few used.

Hints go to the contract beside a proof, so that it can check points by their abscissas alone. The library ``EcVrf``
states the equations. With t = c² modulo n the hints are, in this order: the ordinate of H and of
Γ; U and V; the abscissas of C = cΓ + tG, D = sH + tG and E = c(Γ + Y) + (t - s - 1)G; the inverse of c·s modulo n; the
slope of the chord through Γ and Y. One more follows for each counter that hashing to the curve skipped: the even root
of -f(x), which shows that f(x) is no square, or 0 where the hash is no field element.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from functools import lru_cache

from troth.protocol import p256
from troth.protocol.errors import InvalidField, InvalidProof
from troth.protocol.p256 import GENERATOR, N, P, Point

SUITE = b"\x01"
ENCODE_TO_CURVE, CHALLENGE, PROOF_TO_HASH, BACK = b"\x01", b"\x02", b"\x03", b"\x00"
"""Domain separators of RFC 9381, sections 5.4.1.1, 5.4.3 and 5.2."""

POINT_BYTES, CHALLENGE_BYTES, SCALAR_BYTES = 33, 16, 32
PROOF_BYTES = POINT_BYTES + CHALLENGE_BYTES + SCALAR_BYTES
REMEDY = "Ask the prover for a proof over exactly this key and input."
FIXED_HINTS = 11
"""Hints of a proof for which no counter was skipped."""


@dataclass(frozen=True, slots=True)
class OpenedProof:
    """A proof that holds, with the points of its check; ``skipped`` are the hashes that were no abscissas."""

    hashed: Point
    skipped: tuple[int, ...]
    gamma: Point
    challenge: int
    scalar: int
    commitment: Point
    hashed_commitment: Point


@dataclass(frozen=True, slots=True)
class _Secret:
    scalar: int
    public: Point


def generate_key() -> bytes:
    """A fresh secret: 32 bytes, a big-endian number in 1..n-2."""
    return (1 + secrets.randbelow(p256.N - 2)).to_bytes(SCALAR_BYTES, "big")


def public_key(secret: bytes) -> tuple[int, int]:
    """The public point's coordinates; raises InvalidField if the secret is not as ``generate_key`` makes it."""
    point = _secret(secret).public
    return point.x, point.y


def prove(secret: bytes, alpha: bytes) -> bytes:
    """The proof for ``alpha``, 81 bytes (RFC 9381, section 5.1); always the same for the same secret and input."""
    own = _secret(secret)
    hashed, _ = encode_to_curve(own.public, alpha)
    gamma = p256.multiple(hashed, own.scalar)
    assert gamma is not None  # the secret is not 0 modulo n, and n is prime
    gamma_bytes, nonce = p256.encode(gamma), _nonce(secret, p256.encode(hashed))
    commitment, hashed_commitment = p256.generator_multiple(nonce), p256.multiple(hashed, nonce)
    challenge = _challenge(own.public, hashed, gamma_bytes, commitment, hashed_commitment)
    scalar = (nonce + int.from_bytes(challenge, "big") * own.scalar) % p256.N
    return gamma_bytes + challenge + scalar.to_bytes(SCALAR_BYTES, "big")


def verify(key: tuple[int, int], alpha: bytes, proof: bytes) -> bytes:
    """The output, 32 bytes, if the proof holds (RFC 9381, section 5.3); else raises InvalidProof.

    A proof made on purpose with the nonce 0, which the RFC does not mention, is refused as in the contract.
    """
    open_proof(key, alpha, proof)
    return output_of_sound(proof)


def proof_to_hash(proof: bytes) -> bytes:
    """The output that belongs to a proof (RFC 9381, section 5.2), 32 bytes; says nothing about whether it holds."""
    _split(proof)
    return output_of_sound(proof)


def output_of_sound(proof: bytes) -> bytes:
    """The same for a proof that was made or verified here; whether it is one at all is not looked at."""
    return hashlib.sha256(SUITE + PROOF_TO_HASH + proof[:POINT_BYTES] + BACK).digest()


def open_proof(key: tuple[int, int], alpha: bytes, proof: bytes) -> OpenedProof:
    """Verifies a proof and returns what its check ran through; raises InvalidProof if it does not hold."""
    public = Point(*key)
    if not p256.is_on_curve(public):
        raise InvalidProof("The public key is no point of P-256", key, "Look up the key that the prover registered.")
    gamma, challenge, scalar = _split(proof)
    hashed, skipped = encode_to_curve(public, alpha)
    commitment = p256.difference((GENERATOR, scalar), (public, challenge))
    hashed_commitment = p256.difference((hashed, scalar), (gamma, challenge))
    expected = _challenge(public, hashed, proof[:POINT_BYTES], commitment, hashed_commitment)
    if expected != proof[POINT_BYTES : POINT_BYTES + CHALLENGE_BYTES] or not (commitment and hashed_commitment):
        raise InvalidProof("The VRF proof does not hold", proof, REMEDY)
    return OpenedProof(hashed, skipped, gamma, challenge, scalar, commitment, hashed_commitment)


def encode_to_curve(public: Point, alpha: bytes) -> tuple[Point, tuple[int, ...]]:
    """H, the input hashed to the curve by try and increment (RFC 9381, section 5.4.1.1), and the hashes skipped."""
    start = SUITE + ENCODE_TO_CURVE + p256.encode(public) + alpha
    skipped: list[int] = []
    for counter in range(256):
        digest = hashlib.sha256(start + bytes([counter]) + BACK).digest()
        try:
            return p256.decode(b"\x02" + digest), tuple(skipped)
        except InvalidProof:
            skipped.append(int.from_bytes(digest, "big"))
    raise InvalidProof("The input hashes to no point of P-256", alpha, "Use another input; this one was not random.")


def _split(proof: bytes) -> tuple[Point, int, int]:
    if len(proof) != PROOF_BYTES:
        raise InvalidProof(f"A VRF proof is {PROOF_BYTES} bytes long", proof, REMEDY)
    gamma = p256.decode(proof[:POINT_BYTES])
    challenge = int.from_bytes(proof[POINT_BYTES : POINT_BYTES + CHALLENGE_BYTES], "big")
    scalar = int.from_bytes(proof[-SCALAR_BYTES:], "big")
    if scalar >= p256.N:
        raise InvalidProof("The scalar of a VRF proof is not below the group's order", scalar, REMEDY)
    return gamma, challenge, scalar


def _challenge(
    public: Point, hashed: Point, gamma: bytes, commitment: Point | None, hashed_commitment: Point | None
) -> bytes:
    """First 16 bytes of the hash of all five points; infinity is the one byte 0x00 (SEC 1, section 2.3.3)."""
    points = [p256.encode(public), p256.encode(hashed), gamma]
    points += [p256.encode(point) if point else b"\x00" for point in (commitment, hashed_commitment)]
    return hashlib.sha256(SUITE + CHALLENGE + b"".join(points) + BACK).digest()[:CHALLENGE_BYTES]


def _nonce(secret: bytes, message: bytes) -> int:
    """RFC 6979, section 3.2, with SHA-256 and the group's order."""
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big") % p256.N
    seed = secret + digest.to_bytes(SCALAR_BYTES, "big")
    key, value = bytes(32), b"\x01" * 32
    for separator in (b"\x00", b"\x01"):
        key = hmac.digest(key, value + separator + seed, "sha256")
        value = hmac.digest(key, value, "sha256")
    while True:
        value = hmac.digest(key, value, "sha256")
        if 0 < (nonce := int.from_bytes(value, "big")) < p256.N:
            return nonce
        key = hmac.digest(key, value + b"\x00", "sha256")
        value = hmac.digest(key, value, "sha256")


@lru_cache(maxsize=8)
def _secret(secret: bytes) -> _Secret:
    scalar = int.from_bytes(secret, "big")
    if len(secret) != SCALAR_BYTES or not 0 < scalar < p256.N - 1:
        # The value stays out of the message: an error may be logged.
        raise InvalidField("The VRF secret is not a key", f"{len(secret)} bytes", "Make one with generate_key().")
    public = p256.generator_multiple(scalar)
    assert public is not None  # as above
    return _Secret(scalar, public)


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
