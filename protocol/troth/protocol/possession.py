"""Proof that somebody holds an ECDSA signature by one of a ring's keys, without saying whose (VeriLLM, section 5.3).

The signer does nothing for it. Whoever has its signature (r, s) over a digest z shows the point R, of which r is the
abscissa. By ECDSA's equation sR = zG + rQ for the signer's key Q. So with X(i) = zG + rQ(i) the holder knows the
logarithm s of one of the X(i) to the base R, and proves that by a ring (Abe, Ohkubo and Suzuki, ASIACRYPT 2002):

    c(i + 1) = hash(transcript, u(i)R + c(i)X(i)),    closed if c(n) = c(0).

From two closed rings over one R a signature can be computed, so that a proof without one would forge ECDSA. R is random
and says nothing of its signer, but it is the signature's own: who is later shown the signature sees whose proof it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from coincurve import PublicKey

from troth.protocol import rings, secp256k1
from troth.protocol.errors import InvalidProof
from troth.protocol.hashing import keccak256
from troth.protocol.rings import require_ring, signature_bytes
from troth.protocol.secp256k1 import KEY_BYTES, SCALAR_BYTES
from troth.protocol.typed_data import CURVE_ORDER as N
from troth.protocol.typed_data import recovered_key
from troth.protocol.types import Hash32, to_hash32

TRANSCRIPT_TAG = keccak256(b"troth/possession/1")
REMEDY = "Ask for a proof over exactly this ring and digest."


def prove(signature: bytes, digest: Hash32, ring: Sequence[bytes]) -> bytes:
    """R compressed, c(0) and the u(i): 65 bytes, and 32 for each key.

    Raises InvalidSignature unless ``signature`` is 65 bytes of ECDSA over the digest; InvalidProof where its key is not
    in the ring; InvalidField for what is no ring.
    """
    require_ring(ring)
    own = recovered_key(digest, signature)
    if own not in ring:
        raise InvalidProof("The signature is by no key of the ring", own, "Take a ring that holds its signer.")
    place, count = ring.index(own), len(ring)
    secret = signature[SCALAR_BYTES : 2 * SCALAR_BYTES]
    point = secp256k1.decode(bytes([2 + signature[64] - 27]) + signature[:SCALAR_BYTES])
    transcript = _transcript(ring, digest, point.format())
    nonce = rings.drawn_nonce(secret, transcript)
    scalars = [secp256k1.random_scalar() for _ in ring]
    challenges = {(place + 1) % count: _challenge(transcript, secp256k1.secret_multiple(point, nonce))}
    for step in range(1, count):
        at = (place + step) % count
        made = _commitment(point, digest, ring[at], scalars[at], challenges[at])
        challenges[(at + 1) % count] = _challenge(transcript, made)
    scalars[place] = (nonce - challenges[place] * int.from_bytes(secret, "big")) % N
    shown: bytes = point.format()
    return shown + b"".join(secp256k1.word(one) for one in (challenges[0], *scalars))


def verify(proof: bytes, digest: Hash32, ring: Sequence[bytes]) -> None:
    """Raise InvalidProof unless its maker holds a signature over the digest by a key of the ring; InvalidField for what
    is no ring."""
    require_ring(ring)
    if len(proof) != signature_bytes(len(ring)):
        what = f"A proof for {len(ring)} keys has {signature_bytes(len(ring))} bytes"
        raise InvalidProof(what, f"{len(proof)} bytes", REMEDY)
    point = secp256k1.decode(proof[:KEY_BYTES])
    first, *scalars = secp256k1.scalars_in(proof[KEY_BYTES:])
    transcript, challenge = _transcript(ring, digest, proof[:KEY_BYTES]), first
    for key, scalar in zip(ring, scalars, strict=True):
        challenge = _challenge(transcript, _commitment(point, digest, key, scalar, challenge))
    if challenge != first:
        raise InvalidProof("The proof of a signature does not close", proof[:KEY_BYTES], REMEDY)


def _commitment(point: PublicKey, digest: Hash32, key: bytes, scalar: int, challenge: int) -> PublicKey:
    """u(i)R + c(i)X(i)."""
    abscissa = int.from_bytes(point.format()[1:], "big")
    hashed = int.from_bytes(digest, "big") % N
    shifted = secp256k1.two_multiples(challenge * hashed % N, key, challenge * abscissa % N)
    return secp256k1.add(secp256k1.multiple(point, scalar), shifted)


def _transcript(ring: Sequence[bytes], digest: Hash32, point: bytes) -> bytes:
    return keccak256(TRANSCRIPT_TAG + to_hash32(digest) + keccak256(b"".join(ring)) + point)


def _challenge(transcript: bytes, point: PublicKey) -> int:
    challenge = int.from_bytes(keccak256(transcript + secp256k1.coordinates(point)), "big") % N
    if not challenge:
        raise InvalidProof("A challenge of zero", transcript, "Prove again.")
    return challenge
