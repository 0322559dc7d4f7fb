"""Proofs of holding a signature by one of a ring: there is one for each member, and none without a signature."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support.ring_keys import keys_of, negated, outsider, ring_of_keys

from troth.protocol import possession, rings, typed_data
from troth.protocol.errors import InvalidField, InvalidProof, InvalidSignature
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32

SECRETS = keys_of(4)
RING = ring_of_keys(SECRETS)
DIGEST, OTHER = Hash32(keccak256(b"a row")), Hash32(keccak256(b"another row"))
SIGNATURE = typed_data.sign_digest(DIGEST, SECRETS[1])
PROOF = possession.prove(SIGNATURE, DIGEST, RING)


@settings(max_examples=25)
@given(count=some.integers(2, 8), data=some.data(), digest=some.binary(min_size=32, max_size=32).map(Hash32))
def test_whoever_of_the_ring_signed_it_is_proven(count: int, data: some.DataObject, digest: Hash32) -> None:
    secrets = keys_of(count)
    ring = ring_of_keys(secrets)
    signature = typed_data.sign_digest(digest, secrets[data.draw(some.integers(0, count - 1))])
    proof = possession.prove(signature, digest, ring)
    assert len(proof) == rings.signature_bytes(count)
    possession.verify(proof, digest, ring)


def test_a_proof_hides_the_signature_and_is_another_one_each_time() -> None:
    again = possession.prove(SIGNATURE, DIGEST, RING)
    assert again != PROOF
    assert again[:33] == PROOF[:33]
    # s itself is nowhere in it.
    assert SIGNATURE[32:64] not in PROOF


@settings(max_examples=60)
@given(bit=some.integers(0, 8 * len(PROOF) - 1))
def test_no_bit_of_a_proof_can_be_changed(bit: int) -> None:
    changed = bytearray(PROOF)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(InvalidProof):
        possession.verify(bytes(changed), DIGEST, RING)


def test_a_proof_holds_for_its_own_digest_and_ring_alone() -> None:
    with pytest.raises(InvalidProof):
        possession.verify(PROOF, OTHER, RING)
    with pytest.raises(InvalidProof):
        possession.verify(PROOF, DIGEST, ring_of_keys([*SECRETS[:3], outsider()]))
    with pytest.raises(InvalidProof):
        possession.verify(PROOF, DIGEST, ring_of_keys([*SECRETS[:3], negated(SECRETS[3])]))


def test_who_has_no_signature_of_the_ring_proves_nothing() -> None:
    with pytest.raises(InvalidProof, match="no key of the ring"):
        possession.prove(typed_data.sign_digest(DIGEST, outsider()), DIGEST, RING)
    with pytest.raises(InvalidProof, match="no key of the ring"):
        possession.prove(SIGNATURE, OTHER, RING)
    foreign = ring_of_keys([outsider(), *SECRETS[:3]])
    proof = possession.prove(typed_data.sign_digest(DIGEST, outsider()), DIGEST, foreign)
    with pytest.raises(InvalidProof, match="does not close"):
        possession.verify(proof, DIGEST, RING)
    with pytest.raises(InvalidSignature):
        possession.prove(bytes(65), DIGEST, RING)


def test_a_ring_is_one_and_a_proof_as_long_as_it() -> None:
    for ring in (RING[:1], RING[::-1], (RING[0], RING[0])):
        with pytest.raises(InvalidField):
            possession.prove(SIGNATURE, DIGEST, ring)
        with pytest.raises(InvalidField):
            possession.verify(PROOF, DIGEST, ring)
    for proof in (b"", PROOF[:-1], PROOF + b"\0", PROOF[:-32]):
        with pytest.raises(InvalidProof):
            possession.verify(proof, DIGEST, RING)
