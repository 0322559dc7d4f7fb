"""Linkable ring signatures over secp256k1: one of these keys signed, nobody learns which, and none signs twice unseen.

The scheme is that of Liu, Wei and Wong ("Linkable Spontaneous Anonymous Group Signature", ACISP 2004) with tags by
event, as Tsang and Wei have them (ISPEC 2005). A signature has a **scope**, 32 bytes that say where signers count. With
H the scope hashed to the curve, the key x signs with the tag I = xH. Two signatures of one key in one scope have the
same tag, whatever the ring; tags of different scopes cannot be connected without the key. For i = 0 … n - 1

    L(i) = s(i)G + c(i)P(i)    R(i) = s(i)H + c(i)I    c(i + 1) = hash(transcript, L(i), R(i))

and the ring closes if c(n) = c(0). The transcript binds scope, message, ring and tag. Of L(i) the 20 bytes of its
account are hashed, which is what the EVM's ``ecrecover`` gives (contracts' library ``RingSignature``). To close a ring
without a key means to hit one given account: 2^160 attempts.

The keys are those by which operators sign, so that nothing more is registered. What a ring does not give: whoever
signed can prove it by showing xH with a proof of equal logarithms, so a vote can be sold; and who holds the signer's
key, today or later, finds its tags.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from coincurve import PublicKey

from troth.protocol import secp256k1
from troth.protocol.errors import InvalidField, InvalidProof
from troth.protocol.hashing import keccak256
from troth.protocol.secp256k1 import KEY_BYTES, SCALAR_BYTES, P
from troth.protocol.typed_data import CURVE_ORDER as N
from troth.protocol.types import Hash32, to_hash32

FEWEST, MOST = 2, 64
"""Keys of a ring: one alone hides nobody, and a verifier's work grows with each."""
SCOPE_TAG = keccak256(b"troth/ring/scope/1")
TRANSCRIPT_TAG = keccak256(b"troth/ring/transcript/1")
REMEDY = "Ask the signer for a signature over exactly this ring, scope and message."


@dataclass(frozen=True, slots=True)
class RingSignature:
    """A signature: ``tag`` is I compressed, ``challenge`` c(0), ``scalars`` the s(i) in the ring's order."""

    tag: bytes
    challenge: int
    scalars: tuple[int, ...]


def signature_bytes(members: int) -> int:
    """Length of an encoded signature by a ring of so many keys: 65 bytes, and 32 for each."""
    return KEY_BYTES + SCALAR_BYTES * (1 + members)


def encode(signature: RingSignature) -> bytes:
    """Tag, challenge and scalars, one after the other."""
    return signature.tag + b"".join(secp256k1.word(one) for one in (signature.challenge, *signature.scalars))


def decode(data: bytes, members: int) -> RingSignature:
    """A signature by a ring of so many keys. There is one encoding of each; raises InvalidProof for all else."""
    if len(data) != signature_bytes(members):
        what = f"A signature by {members} keys has {signature_bytes(members)} bytes"
        raise InvalidProof(what, f"{len(data)} bytes", REMEDY)
    challenge, *scalars = secp256k1.scalars_in(data[KEY_BYTES:])
    secp256k1.decode(data[:KEY_BYTES])
    return RingSignature(data[:KEY_BYTES], challenge, tuple(scalars))


def ring_of(keys: Sequence[bytes]) -> tuple[bytes, ...]:
    """These compressed keys as a ring: in ascending order, each once; raises InvalidField for keys that make none."""
    ring = tuple(sorted(keys))
    require_ring(ring)
    return ring


def ring_in(data: bytes | memoryview) -> tuple[bytes, ...]:
    """A ring as it travels, its keys one after the other; raises InvalidField."""
    whole = bytes(data)
    if len(whole) % KEY_BYTES or len(whole) > MOST * KEY_BYTES:
        raise InvalidField(f"A ring's keys have {KEY_BYTES} bytes each", len(whole), "Send whole keys.")
    ring = tuple(whole[at : at + KEY_BYTES] for at in range(0, len(whole), KEY_BYTES))
    require_ring(ring)
    return ring


def require_ring(ring: Sequence[bytes]) -> None:
    """Raise InvalidField unless these are 2 to 64 points in ascending order, so that each is there once."""
    if not FEWEST <= len(ring) <= MOST:
        raise InvalidField(f"A ring has {FEWEST} to {MOST} keys", len(ring), "Take the keys of all who may sign.")
    if any(first >= second for first, second in pairwise(ring)):
        raise InvalidField("A ring's keys ascend, each once", len(ring), "Sort them, and leave doubles out.")
    for key in ring:
        try:
            secp256k1.decode(key)
        except InvalidProof as error:
            raise InvalidField("A ring's key is no point of secp256k1", key, "Ask its owner for the key.") from error


def public_key(secret: bytes) -> bytes:
    """The compressed key of an operator's secret, 33 bytes; raises InvalidField where it is no secret."""
    scalar = int.from_bytes(secret, "big")
    if len(secret) != SCALAR_BYTES or not 0 < scalar < N:
        # The value stays out of the message: an error may be logged.
        raise InvalidField("A ring's secret is a secp256k1 key", f"{len(secret)} bytes", "Take the operator's key.")
    key: bytes = secp256k1.generator_multiple(scalar).format()
    return key


def sign(secret: bytes, ring: Sequence[bytes], scope: Hash32, message: Hash32) -> RingSignature:
    """A signature over 32 bytes by one key of the ring; another one each time, with the same tag.

    Raises InvalidField where the secret is no key of this ring.
    """
    require_ring(ring)
    own = public_key(secret)
    if own not in ring:
        raise InvalidField("The signer's key is not in the ring", own, "Sign for a ring that holds it.")
    place, count, key = ring.index(own), len(ring), int.from_bytes(secret, "big")
    base = hash_to_curve(scope)
    tag = secp256k1.secret_multiple(base, key)
    transcript = _transcript(ring, scope, message, tag.format())
    nonce = drawn_nonce(secret, transcript)
    scalars = [secp256k1.random_scalar() for _ in ring]
    commitment = secp256k1.generator_multiple(nonce), secp256k1.secret_multiple(base, nonce)
    challenges = {(place + 1) % count: _challenge(transcript, *commitment)}
    for step in range(1, count):
        at = (place + step) % count
        scalar, challenge = scalars[at], challenges[at]
        left = secp256k1.two_multiples(scalar, ring[at], challenge)
        right = secp256k1.add(secp256k1.multiple(base, scalar), secp256k1.multiple(tag, challenge))
        challenges[(at + 1) % count] = _challenge(transcript, left, right)
    scalars[place] = (nonce - challenges[place] * key) % N
    return RingSignature(tag.format(), challenges[0], tuple(scalars))


def verify(signature: RingSignature, ring: Sequence[bytes], scope: Hash32, message: Hash32) -> None:
    """Raise InvalidProof unless one key of the ring made this signature; InvalidField for what is no ring.

    Who counts signatures counts each ``tag`` once.
    """
    _, challenges = walk(signature, ring, scope, message)
    if challenges[-1] != signature.challenge:
        raise InvalidProof("The ring signature does not close", signature.tag, REMEDY)


def hints(signature: RingSignature, ring: Sequence[bytes], scope: Hash32, message: Hash32) -> list[int]:
    """What the contract needs beside a signature, five words for each key: s(i)H, c(i)I, and the inverse of the
    difference of their abscissas. Raises InvalidProof where a signature has none, which chance does not bring about."""
    parts, _ = walk(signature, ring, scope, message)
    return hints_of(parts)


def hints_of(parts: Sequence[tuple[PublicKey, PublicKey]]) -> list[int]:
    """The hints of what ``walk`` ran through."""
    made = []
    for first, second in parts:
        (x, y), (other_x, other_y) = first.point(), second.point()
        if x == other_x:
            raise InvalidProof("The contract cannot check this signature", first.format(), "Sign again.")
        made += [x, y, other_x, other_y, pow(other_x - x, -1, P)]
    return made


def walk(
    signature: RingSignature, ring: Sequence[bytes], scope: Hash32, message: Hash32
) -> tuple[list[tuple[PublicKey, PublicKey]], list[int]]:
    """s(i)H and c(i)I of each key, and c(0) to c(n), where the last closes the ring if it is the first.

    Raises as ``verify``, but not where the ring does not close.
    """
    require_ring(ring)
    if len(signature.scalars) != len(ring):
        raise InvalidProof(f"The ring has {len(ring)} keys", len(signature.scalars), REMEDY)
    decode(encode(signature), len(ring))
    base, tag = hash_to_curve(scope), secp256k1.decode(signature.tag)
    transcript, challenges = _transcript(ring, scope, message, signature.tag), [signature.challenge]
    parts = []
    for key, scalar in zip(ring, signature.scalars, strict=True):
        challenge = challenges[-1]
        parts.append((secp256k1.multiple(base, scalar), secp256k1.multiple(tag, challenge)))
        left, right = secp256k1.two_multiples(scalar, key, challenge), secp256k1.add(*parts[-1])
        challenges.append(_challenge(transcript, left, right))
    return parts, challenges


@lru_cache(maxsize=64)
def hash_to_curve(scope: Hash32) -> PublicKey:
    """H: the point with an even ordinate whose abscissa is the first hash of tag, scope and counter that is one."""
    for counter in range(256):
        digest = keccak256(SCOPE_TAG + to_hash32(scope) + bytes([counter]))
        try:
            return PublicKey(b"\x02" + digest)
        except ValueError:
            continue
    raise InvalidField("The scope hashes to no point", scope, "Use another one; this one was not random.")


def drawn_nonce(secret: bytes, transcript: bytes) -> int:
    """Random, and by the secret and what is signed: two signatures share none even where randomness fails."""
    while True:
        drawn = int.from_bytes(keccak256(secret + secrets.token_bytes(32) + transcript), "big")
        if 0 < drawn < N:
            return drawn


def _transcript(ring: Sequence[bytes], scope: Hash32, message: Hash32, tag: bytes) -> bytes:
    return keccak256(TRANSCRIPT_TAG + to_hash32(scope) + to_hash32(message) + keccak256(b"".join(ring)) + tag)


def _challenge(transcript: bytes, left: PublicKey, right: PublicKey) -> int:
    account = keccak256(secp256k1.coordinates(left))[12:]
    challenge = int.from_bytes(keccak256(transcript + account + secp256k1.coordinates(right)), "big") % N
    if not challenge:
        raise InvalidProof("A challenge of zero", transcript, "Sign again.")
    return challenge
