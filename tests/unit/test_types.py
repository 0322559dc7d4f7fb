"""Addresses, hashes and layer splits."""

from __future__ import annotations

import pytest
from eth_utils.address import to_checksum_address

from troth.protocol.errors import InvalidField
from troth.protocol.types import (
    SEGMENTS_LIMIT,
    Segment,
    address_from_bytes,
    address_to_bytes,
    segments_from_ends,
    to_address,
    to_hash32,
)

CHECKSUMMED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"  # from EIP-55


def test_checksum_follows_eip_55() -> None:
    for index in range(50):
        raw = bytes((index * 7 + step * 31) % 256 for step in range(20))
        assert address_from_bytes(raw) == to_checksum_address(raw)
        assert address_to_bytes(address_from_bytes(raw)) == raw
    assert address_to_bytes(CHECKSUMMED).hex() == CHECKSUMMED[2:].lower()


def test_user_input_may_lack_a_checksum_but_not_fail_it() -> None:
    assert to_address(CHECKSUMMED.lower()) == CHECKSUMMED
    assert to_address("0x" + CHECKSUMMED[2:].upper()) == CHECKSUMMED
    assert to_address(CHECKSUMMED) == CHECKSUMMED
    with pytest.raises(InvalidField, match="checksum"):
        to_address(CHECKSUMMED[:-1] + "D")
    for text in ("", "0x", "0x" + "g" * 40, "0x" + " 1" * 20, CHECKSUMMED + "00"):
        with pytest.raises(InvalidField):
            to_address(text)


@pytest.mark.parametrize("value", [b"", bytes(31), bytes(33), "0" * 32, None])
def test_hash_has_32_bytes(value: object) -> None:
    with pytest.raises(InvalidField):
        to_hash32(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("raw", [b"", bytes(19), bytes(21)])
def test_address_has_20_bytes(raw: bytes) -> None:
    with pytest.raises(InvalidField):
        address_from_bytes(raw)


@pytest.mark.parametrize(("first", "end"), [(0, 0), (5, 4), (-1, 3), (0, 256)])
def test_segment_is_not_empty_and_within_a_byte(first: int, end: int) -> None:
    with pytest.raises(InvalidField):
        Segment(first, end)


def test_segments_of_a_split() -> None:
    assert segments_from_ends((10, 20, 30), 30) == (Segment(0, 10), Segment(10, 20), Segment(20, 30))
    assert len(segments_from_ends(tuple(range(1, SEGMENTS_LIMIT + 1)), SEGMENTS_LIMIT)) == SEGMENTS_LIMIT


@pytest.mark.parametrize("ends", [(), (10,), (10, 10, 30), (20, 10, 30), (10, 40), (0, 30), (-5, 30), (10, 30, 30)])
def test_split_that_the_contract_would_refuse(ends: tuple[int, ...]) -> None:
    with pytest.raises(InvalidField):
        segments_from_ends(ends, 30)


def test_split_with_more_segments_than_fit_a_word() -> None:
    with pytest.raises(InvalidField):
        segments_from_ends(tuple(range(1, SEGMENTS_LIMIT + 2)), SEGMENTS_LIMIT + 1)
