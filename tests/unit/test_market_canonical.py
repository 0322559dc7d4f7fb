"""Canonical JSON: one value, one form; whatever else arrives is refused with words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from troth.protocol.errors import InvalidField
from troth.protocol.market import canonical
from troth.protocol.market.bodies import Failed
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Admission
from troth.protocol.market.types import Tab
from troth.protocol.types import Address, Hash32

LIMIT = 10_000
SIGNED = Signed(Admission(Hash32(b"\1" * 32), Hash32(b"\2" * 32), 7), b"\3" * 65)
WRITTEN = canonical.encode(SIGNED.message)


def test_a_value_comes_back() -> None:
    assert canonical.decode(Admission, WRITTEN, LIMIT) == SIGNED.message


def test_a_signed_message_is_written_with_its_own_signature() -> None:
    """Its text is kept: neither another signature nor another message may come out in its place."""
    once = canonical.encode(SIGNED)
    assert canonical.encode(Signed(SIGNED.message, SIGNED.signature)) == once
    resigned = canonical.encode(replace(SIGNED, signature=b"\4" * 65))
    moved = canonical.encode(replace(SIGNED, message=replace(SIGNED.message, block_number=8)))
    assert json.loads(resigned) == {**json.loads(once), "signature": "0x" + "04" * 65}
    assert json.loads(moved) == {**json.loads(once), "message": {**json.loads(WRITTEN), "block_number": "8"}}
    assert canonical.decode(Signed[Admission], resigned, LIMIT).signature == b"\4" * 65


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(WRITTEN), **fields}, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no admission"),
        (b"[]", "no admission"),
        (b"null", "no admission"),
        (WRITTEN + b" ", "canonical form"),
        (WRITTEN.replace(b":", b": ", 1), "canonical form"),
        (changed(more="1"), "no admission"),
        (changed(block_number=7), "no admission"),
        (changed(block_number="07"), "canonical form"),
        (changed(block_number="-7"), "no admission"),
        (changed(block_number="9" * 79), "no admission"),
        (changed(block_number="\u0667"), "no admission"),
        (changed(order="0x" + "01" * 31), "no admission"),
        (changed(order="0X" + "01" * 32), "canonical form|no admission"),
        (changed(order=None), "no admission"),
        (b"[" * 100_000, "at most"),
    ],
)
def test_anything_else_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(InvalidField, match=words):
        canonical.decode(Admission, data, LIMIT)


def test_addresses_are_addresses() -> None:
    tab = Tab(*(Address("0x" + digit * 40) for digit in "123"))
    written = canonical.encode(tab)
    assert canonical.decode(Tab, written, LIMIT) == tab
    with pytest.raises(InvalidField):
        canonical.decode(Tab, written.replace(b"0x" + b"1" * 40, b"0x" + b"1" * 39), LIMIT)


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    """It could be neither kept, nor shown, nor sent on."""
    whole, half = Failed("code", "\U0001f600"), Failed("code", "\ud83d")
    assert canonical.decode(Failed, canonical.encode(whole), LIMIT) == whole
    with pytest.raises(InvalidField, match="surrogates"):
        canonical.decode(Failed, canonical.encode(half), LIMIT)
