"""Ring signatures: whoever is in the ring signs, nobody else does, and nobody twice unseen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support.ring_keys import SCOPE, keys_of, outsider, ring_of_keys

from troth.protocol import rings, secp256k1
from troth.protocol.errors import InvalidField, InvalidProof
from troth.protocol.hashing import keccak256
from troth.protocol.rings import RingSignature
from troth.protocol.typed_data import CURVE_ORDER as N
from troth.protocol.typed_data import address_of
from troth.protocol.types import Hash32

SECRETS = keys_of(5)
RING = ring_of_keys(SECRETS)
MESSAGE = Hash32(keccak256(b"message"))
hashes = some.binary(min_size=32, max_size=32).map(Hash32)


@settings(max_examples=25)
@given(count=some.integers(2, 9), data=some.data(), scope=hashes, message=hashes)
def test_each_member_signs_and_the_encoding_comes_back(
    count: int, data: some.DataObject, scope: Hash32, message: Hash32
) -> None:
    secrets = keys_of(count)
    ring = ring_of_keys(secrets)
    made = rings.sign(secrets[data.draw(some.integers(0, count - 1))], ring, scope, message)
    encoded = rings.encode(made)
    assert len(encoded) == rings.signature_bytes(count)
    assert rings.decode(encoded, count) == made
    rings.verify(made, ring, scope, message)


@settings(max_examples=60)
@given(data=some.binary(max_size=240), members=some.integers(0, 6))
def test_whatever_bytes_come_they_are_decoded_or_refused(data: bytes, members: int) -> None:
    try:
        found = rings.decode(data, members)
    except InvalidProof:
        return
    assert rings.encode(found) == data


@settings(max_examples=60)
@given(bit=some.integers(0, 8 * rings.signature_bytes(3) - 1))
def test_no_bit_of_a_signature_can_be_changed(bit: int) -> None:
    ring = ring_of_keys(SECRETS[:3])
    changed = bytearray(rings.encode(_SIGNED))
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(InvalidProof):
        rings.verify(rings.decode(bytes(changed), 3), ring, SCOPE, MESSAGE)


_SIGNED = rings.sign(SECRETS[1], ring_of_keys(SECRETS[:3]), SCOPE, MESSAGE)


def test_tags_are_the_keys_own_in_a_scope_and_say_nothing_across_scopes() -> None:
    other = Hash32(keccak256(b"another scope"))
    tags = {rings.sign(secret, RING, scope, MESSAGE).tag for secret in SECRETS for scope in (SCOPE, other)}
    assert len(tags) == 2 * len(SECRETS)
    # Another message, another ring: the same key shows the same tag.
    again = rings.sign(SECRETS[1], RING, SCOPE, Hash32(keccak256(b"another message")))
    assert again.tag == _SIGNED.tag
    assert again.tag in tags


def test_signing_twice_gives_two_signatures_that_do_not_show_the_key() -> None:
    first, second = (rings.sign(SECRETS[1], RING, SCOPE, MESSAGE) for _ in range(2))
    assert first != second
    # One nonce for two signatures would give the key away: x = (s - s') / (c' - c).
    place = RING.index(rings.public_key(SECRETS[1]))
    challenges = [rings.walk(one, RING, SCOPE, MESSAGE)[1][place] for one in (first, second)]
    found = (first.scalars[place] - second.scalars[place]) * pow(challenges[1] - challenges[0], -1, N) % N
    assert found != int.from_bytes(SECRETS[1], "big")


def test_a_foreign_key_cannot_sign() -> None:
    with pytest.raises(InvalidField, match="not in the ring"):
        rings.sign(outsider(), RING, SCOPE, MESSAGE)
    foreign = ring_of_keys([outsider(), *SECRETS[:2]])
    made = rings.sign(outsider(), foreign, SCOPE, MESSAGE)
    # In place of a member's key, its signature does not close.
    with pytest.raises(InvalidProof, match="does not close"):
        rings.verify(made, ring_of_keys(SECRETS[:3]), SCOPE, MESSAGE)


@pytest.mark.parametrize(
    "bend",
    [
        lambda one: replace(one, tag=rings.sign(SECRETS[2], RING, SCOPE, MESSAGE).tag),
        lambda one: replace(one, tag=bytes([one.tag[0] ^ 1]) + one.tag[1:]),
        lambda one: replace(one, tag=rings.public_key(SECRETS[0])),
        lambda one: replace(one, challenge=one.challenge % (N - 1) + 1),
        lambda one: replace(one, scalars=(*one.scalars[1:], one.scalars[0])),
        lambda one: replace(one, scalars=one.scalars[:-1]),
        lambda one: replace(one, scalars=(*one.scalars[:-1], 0)),
        lambda one: replace(one, scalars=(*one.scalars[:-1], one.scalars[-1] + N)),
    ],
)
def test_a_bent_signature_is_refused(bend: Callable[[RingSignature], RingSignature]) -> None:
    with pytest.raises((InvalidProof, OverflowError)):
        rings.verify(bend(rings.sign(SECRETS[1], RING, SCOPE, MESSAGE)), RING, SCOPE, MESSAGE)


@pytest.mark.parametrize(
    "ring",
    [
        RING[:1],
        (RING[0], RING[0]),
        (RING[1], RING[0]),
        (RING[0], b"\x02" + bytes(32)),
        (RING[0], b"\x04" + RING[1][1:]),
        (RING[0], RING[1][:32]),
        tuple(bytes([2]) + number.to_bytes(32, "big") for number in range(65)),
    ],
)
def test_what_is_no_ring_is_refused(ring: tuple[bytes, ...]) -> None:
    with pytest.raises(InvalidField):
        rings.require_ring(ring)
    with pytest.raises(InvalidField):
        rings.verify(_SIGNED, ring, SCOPE, MESSAGE)


def test_a_forger_who_knows_all_public_keys_does_not_close_the_ring() -> None:
    """It bends the last scalar of a ring that it began with numbers of its own."""
    base = rings.sign(outsider(), ring_of_keys([outsider(), *SECRETS[:2]]), SCOPE, MESSAGE)
    for scalar in range(1, 200):
        forged = RingSignature(base.tag, base.challenge, (*base.scalars[:2], scalar))
        with pytest.raises(InvalidProof):
            rings.verify(forged, ring_of_keys(SECRETS[:3]), SCOPE, MESSAGE)


def test_accounts_are_those_that_sign() -> None:
    for secret in SECRETS:
        assert secp256k1.account_of(rings.public_key(secret)) == address_of(secret)


def test_a_secret_that_is_no_key_is_refused_and_not_shown() -> None:
    for secret in (bytes(32), b"\xff" * 32, b"short"):
        with pytest.raises(InvalidField) as caught:
            rings.public_key(secret)
        assert secret.hex() not in str(caught.value)
