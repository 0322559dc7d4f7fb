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

from coincurve import PrivateKey, PublicKey

from troth.protocol.errors import InvalidField, InvalidProof
from troth.protocol.hashing import keccak256
from troth.protocol.typed_data import CURVE_ORDER as N
from troth.protocol.types import Address, Hash32, address_from_bytes, to_hash32

P = 2**256 - 2**32 - 977
"""Order of secp256k1's field."""
FEWEST, MOST = 2, 64
"""Keys of a ring: one alone hides nobody, and a verifier's work grows with each."""
KEY_BYTES, SCALAR_BYTES = 33, 32
HINTS = 5
"""Words that the contract needs beside a signature for each key."""
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
    return signature.tag + b"".join(_word(one) for one in (signature.challenge, *signature.scalars))


def decode(data: bytes, members: int) -> RingSignature:
    """A signature by a ring of so many keys. There is one encoding of each; raises InvalidProof for all else."""
    if len(data) != signature_bytes(members):
        what = f"A signature by {members} keys has {signature_bytes(members)} bytes"
        raise InvalidProof(what, f"{len(data)} bytes", REMEDY)
    words = [int.from_bytes(data[at : at + SCALAR_BYTES], "big") for at in range(KEY_BYTES, len(data), SCALAR_BYTES)]
    if not all(0 < one < N for one in words):
        raise InvalidProof("A scalar of a ring signature lies between 0 and the group's order", data[:40], REMEDY)
    _point(data[:KEY_BYTES])
    return RingSignature(data[:KEY_BYTES], words[0], tuple(words[1:]))


def ring_of(keys: Sequence[bytes]) -> tuple[bytes, ...]:
    """These compressed keys as a ring: in ascending order, each once; raises InvalidField for keys that make none."""
    ring = tuple(sorted(keys))
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
            _point(key)
        except InvalidProof as error:
            raise InvalidField("A ring's key is no point of secp256k1", key, "Ask its owner for the key.") from error


def public_key(secret: bytes) -> bytes:
    """The compressed key of an operator's secret, 33 bytes."""
    key: bytes = _private(secret).public_key.format()
    return key


def account_of(key: bytes) -> Address:
    """The account that signs with a compressed key; raises InvalidProof where it is no point."""
    return _account(_point(key))


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
    tag = _secret_multiple(base, key).format()
    transcript = _transcript(ring, scope, message, tag)
    nonce = _nonce(secret, transcript)
    scalars = [1 + secrets.randbelow(N - 1) for _ in ring]
    commitment = _challenge(transcript, PrivateKey(_word(nonce)).public_key, _secret_multiple(base, nonce))
    challenges = {(place + 1) % count: commitment}
    for step in range(1, count):
        at = (place + step) % count
        scalar, challenge = scalars[at], challenges[at]
        right = _sum(base.multiply(_word(scalar)), _point(tag).multiply(_word(challenge)))
        challenges[(at + 1) % count] = _challenge(transcript, _left(ring[at], scalar, challenge), right)
    scalars[place] = (nonce - challenges[place] * key) % N
    return RingSignature(tag, challenges[0], tuple(scalars))


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
    base, tag = hash_to_curve(scope), _point(signature.tag)
    transcript, challenges = _transcript(ring, scope, message, signature.tag), [signature.challenge]
    parts = []
    for key, scalar in zip(ring, signature.scalars, strict=True):
        parts.append((base.multiply(_word(scalar)), tag.multiply(_word(challenges[-1]))))
        challenges.append(_challenge(transcript, _left(key, scalar, challenges[-1]), _sum(*parts[-1])))
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


def _left(key: bytes, scalar: int, challenge: int) -> PublicKey:
    """sG + cP in one multiplication, as the key that ECDSA recovers from r = P's abscissa (SEC 1, section 4.1.6)."""
    abscissa = int.from_bytes(key[1:], "big")
    recoverable = key[1:] + _word(challenge * abscissa % N) + bytes([key[0] - 2])
    try:
        return PublicKey.from_signature_and_message(recoverable, _word(-scalar * abscissa % N), hasher=None)
    except ValueError as error:
        raise InvalidProof("A commitment of the ring is the point at infinity", key, REMEDY) from error


def _transcript(ring: Sequence[bytes], scope: Hash32, message: Hash32, tag: bytes) -> bytes:
    return keccak256(TRANSCRIPT_TAG + to_hash32(scope) + to_hash32(message) + keccak256(b"".join(ring)) + tag)


def _challenge(transcript: bytes, left: PublicKey, right: PublicKey) -> int:
    hashed = keccak256(transcript + keccak256(_coordinates(left))[12:] + _coordinates(right))
    challenge = int.from_bytes(hashed, "big") % N
    if not challenge:
        raise InvalidProof("A challenge of zero", transcript, "Sign again.")
    return challenge


def _sum(first: PublicKey, second: PublicKey) -> PublicKey:
    try:
        return PublicKey.combine_keys([first, second])
    except ValueError as error:
        raise InvalidProof("A commitment of the ring is the point at infinity", b"", REMEDY) from error


def _secret_multiple(point: PublicKey, secret: int) -> PublicKey:
    """secret·point as the sum of two multiples by random scalars: the time of a multiplication tells of those alone."""
    blind = 1 + secrets.randbelow(N - 1)
    rest = (secret - blind) % N
    if not rest:
        return point.multiply(_word(blind))
    return PublicKey.combine_keys([point.multiply(_word(blind)), point.multiply(_word(rest))])


def _nonce(secret: bytes, transcript: bytes) -> int:
    """Random, and by the secret and what is signed: two signatures share none even where randomness fails."""
    while True:
        drawn = int.from_bytes(keccak256(secret + secrets.token_bytes(32) + transcript), "big")
        if 0 < drawn < N:
            return drawn


@lru_cache(maxsize=16)
def _private(secret: bytes) -> PrivateKey:
    if len(secret) != SCALAR_BYTES or not 0 < int.from_bytes(secret, "big") < N:
        # The value stays out of the message: an error may be logged.
        raise InvalidField("A ring's secret is a secp256k1 key", f"{len(secret)} bytes", "Take the operator's key.")
    return PrivateKey(secret)


def _point(data: bytes) -> PublicKey:
    """A compressed point whose abscissa the EVM's ``ecrecover`` takes."""
    if len(data) != KEY_BYTES or data[0] not in (2, 3) or not 0 < int.from_bytes(data[1:], "big") < N:
        raise InvalidProof("A compressed point is 0x02 or 0x03 and an abscissa", data, REMEDY)
    try:
        return PublicKey(bytes(data))
    except ValueError as error:
        raise InvalidProof("No point of secp256k1 has this abscissa", data, REMEDY) from error


def _account(point: PublicKey) -> Address:
    return address_from_bytes(keccak256(_coordinates(point))[12:])


def _coordinates(point: PublicKey) -> bytes:
    coordinates: bytes = point.format(compressed=False)[1:]
    return coordinates


def _word(number: int) -> bytes:
    return number.to_bytes(SCALAR_BYTES, "big")
