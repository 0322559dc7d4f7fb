"""Ring signatures in Solidity and in Python: the same are taken and refused, and no changed one passes."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from support.ring_keys import SCOPE, keys_of, negated, outsider, ring_of_keys
from web3.exceptions import ContractCustomError

from troth.protocol import rings, secp256k1
from troth.protocol.errors import InvalidField, InvalidProof
from troth.protocol.hashing import keccak256
from troth.protocol.typed_data import CURVE_ORDER as N
from troth.protocol.types import Hash32

pytestmark = [pytest.mark.chain, pytest.mark.slow]

MESSAGE = Hash32(keccak256(b"the segment is accepted"))
EXECUTION_GAS = 12_500
"""Of each key, at most, beside 12,000 in all."""
INVALID = "0x" + keccak256(b"InvalidSignature(uint256)")[:4].hex()


def _call(harness: Any, ring: tuple[bytes, ...], signature: bytes, given: list[int], **other: Hash32) -> int:
    scope, message = other.get("scope", SCOPE), other.get("message", MESSAGE)
    spent: int = harness.functions.verify(b"".join(ring), scope, message, signature, given).call()
    return spent


def _failed_check(error: ContractCustomError) -> int:
    found = re.match(INVALID + "([0-9a-f]{64})", str(error.data))
    assert found is not None, error
    return int(found[1], 16)


def _signed(count: int, place: int, scope: Hash32 = SCOPE) -> tuple[tuple[bytes, ...], bytes, list[int]]:
    secrets = keys_of(count)
    ring = ring_of_keys(secrets)
    made = rings.sign(secrets[place], ring, scope, MESSAGE)
    return ring, rings.encode(made), rings.hints(made, ring, scope, MESSAGE)


@pytest.mark.parametrize("count", [2, 3, 4, 10, 25])
def test_what_holds_in_python_holds_in_the_contract(ring_harness: Any, count: int) -> None:
    for place in {0, count // 2, count - 1}:
        ring, signature, given = _signed(count, place)
        rings.verify(rings.decode(signature, count), ring, SCOPE, MESSAGE)
        assert _call(ring_harness, ring, signature, given) <= 12_000 + EXECUTION_GAS * count


def test_scopes_hash_to_the_same_points(ring_harness: Any) -> None:
    for number in range(24):
        scope = Hash32(number.to_bytes(32, "big"))
        point = rings.hash_to_curve(scope)
        assert point.format()[0] == 2
        assert ring_harness.functions.hashToCurve(scope).call() == point.point()[0]


def test_any_changed_bit_is_refused(ring_harness: Any) -> None:
    ring, signature, given = _signed(3, 1)
    bits = 8 * len(signature) + 256 * len(given)
    source = Random(3)
    # The compressed tag's and every scalar's ends, and a hundred bits elsewhere.
    changes = sorted({*range(8), *(8 * at for at in range(len(signature))), *source.sample(range(bits), 100)})
    left = ring_harness.functions.survivors(b"".join(ring), SCOPE, MESSAGE, signature, given, changes).call()
    assert left == 0


def test_a_signature_counts_for_its_own_ring_scope_and_message_alone(ring_harness: Any) -> None:
    ring, signature, given = _signed(3, 1)
    other = Hash32(keccak256(b"other"))
    for changed in ({"scope": other}, {"message": other}):
        with pytest.raises(ContractCustomError):
            _call(ring_harness, ring, signature, given, **changed)
    foreign = rings.ring_of([ring[0], ring[1], rings.public_key(outsider())])
    with pytest.raises(ContractCustomError):
        _call(ring_harness, foreign, signature, given)


def test_each_check_stops_what_it_is_there_for(ring_harness: Any) -> None:
    ring, signature, given = _signed(3, 1)

    def word(at: int, number: int) -> bytes:
        return signature[:at] + number.to_bytes(32, "big") + signature[at + 32 :]

    def hinted(at: int, number: int) -> list[int]:
        return [*given[:at], number, *given[at + 1 :]]

    no_point = next(
        candidate for number in range(1, 99) if not _is_point(candidate := b"\x02" + number.to_bytes(32, "big"))
    )
    attempts: list[tuple[int, tuple[bytes, ...], bytes, list[int]]] = [
        (1, ring[:1], signature[:97], given[:5]),
        (1, ring, signature + b"\0", given),
        (1, ring, signature, [*given, 0]),
        (2, ring, word(33, 0), given),
        (2, ring, word(33, N), given),
        (3, ring, b"\x04" + signature[1:], given),
        (3, (b"\x00" + ring[0][1:], *ring[1:]), signature, given),
        (3, ring, b"\x02" + N.to_bytes(32, "big") + signature[33:], given),
        (4, (ring[1], ring[0], ring[2]), signature, given),
        (4, (ring[0], ring[0], ring[2]), signature, given),
        (5, ring, word(65, 0), given),
        (5, ring, word(65, N), given),
        (6, ring, signature, hinted(0, given[0] ^ 1)),
        (7, ring, signature, hinted(2, given[2] ^ 1)),
        (7, ring, no_point + signature[33:], given),
        (8, ring, signature, hinted(4, given[4] ^ 1)),
        (9, (no_point, *ring[1:]), signature, given),
        (10, ring, word(97, (int.from_bytes(signature[97:129], "big") + 1) % N), _hints_of_broken(ring, signature)),
    ]
    for check, changed_ring, changed, changed_hints in attempts:
        with pytest.raises(ContractCustomError) as caught:
            _call(ring_harness, changed_ring, changed, changed_hints)
        assert _failed_check(caught.value) == check
        if (changed_ring, changed) != (ring, signature):
            assert not _holds(changed_ring, changed)


def test_two_signatures_of_one_key_have_one_tag_and_a_negated_key_another(ring_harness: Any) -> None:
    secrets = keys_of(3)
    twin = negated(secrets[0])
    ring = ring_of_keys([*secrets, twin])
    tags = []
    for secret in (secrets[0], secrets[0], twin, secrets[1]):
        made = rings.sign(secret, ring, SCOPE, MESSAGE)
        _call(ring_harness, ring, rings.encode(made), rings.hints(made, ring, SCOPE, MESSAGE))
        tags.append(made.tag)
    assert tags[0] == tags[1]
    assert len(set(tags)) == 3


def _holds(ring: tuple[bytes, ...], signature: bytes) -> bool:
    try:
        rings.verify(rings.decode(signature, len(ring)), ring, SCOPE, MESSAGE)
    except (InvalidProof, InvalidField):
        return False
    return True


def _is_point(data: bytes) -> bool:
    try:
        secp256k1.account_of(data)
    except InvalidProof:
        return False
    return True


def _hints_of_broken(ring: tuple[bytes, ...], signature: bytes) -> list[int]:
    """Hints with which all points of a ring whose second scalar is one too large are what they must be."""
    broken = rings.decode(signature, len(ring))
    scalars = (broken.scalars[0], (broken.scalars[1] + 1) % N, broken.scalars[2])
    opened, _ = rings.walk(rings.RingSignature(broken.tag, broken.challenge, scalars), ring, SCOPE, MESSAGE)
    return rings.hints_of(opened)
