"""Envelopes: every field is covered by the signature, and each refusal has its own name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troth.protocol.typed_data import Domain
from troth.protocol.types import Address
from troth.transport.envelope import ALLOWED_SKEW, OVERHEAD, EnvelopeKind, Receiver, seal
from troth.transport.errors import ClockSkew, EnvelopeRefused, MalformedEnvelope, Replayed, WrongSigner
from troth.transport.identity import Operator

DOMAIN = Domain(31337, Address("0x5FbDB2315678afecb367f032d93F642f64180aa3"))
SENDER = Operator(b"\x01" * 32, DOMAIN)
RECIPIENT = Operator(b"\x02" * 32, DOMAIN)
NOW = 1_700_000_000


def sealed(content: bytes = b"rows", now: int = NOW, counter: int = 1) -> bytes:
    nonce = b"n" * 24 + counter.to_bytes(8, "big")
    return seal(SENDER, RECIPIENT.address, EnvelopeKind.REQUEST, nonce, content, now=now)


def receiver() -> Receiver:
    return Receiver(RECIPIENT, clock=lambda: NOW + 0.9)


def test_what_was_sealed_opens() -> None:
    frame = sealed()
    opened = receiver().open(frame, SENDER.address)
    assert (opened.kind, opened.content, opened.timestamp) == (EnvelopeKind.REQUEST, b"rows", NOW)
    assert len(frame) == OVERHEAD + 4


@given(st.integers(0, OVERHEAD + 3), st.integers(1, 255))
def test_no_changed_byte_passes(position: int, change: int) -> None:
    frame = bytearray(sealed())
    frame[position] ^= change
    with pytest.raises(EnvelopeRefused):
        receiver().open(bytes(frame), SENDER.address)


@given(st.binary(max_size=OVERHEAD + 40))
def test_arbitrary_bytes_are_refused_by_name(frame: bytes) -> None:
    with pytest.raises(EnvelopeRefused):
        receiver().open(frame, SENDER.address)


@pytest.mark.parametrize("difference", [-ALLOWED_SKEW, 0, ALLOWED_SKEW])
def test_a_minute_either_way_is_allowed(difference: int) -> None:
    receiver().open(sealed(now=NOW + difference), SENDER.address)


@pytest.mark.parametrize(("difference", "words"), [(-61, "61 s behind"), (61, "61 s ahead of")])
def test_more_is_refused_with_the_difference(difference: int, words: str) -> None:
    with pytest.raises(ClockSkew, match=words) as skew:
        receiver().open(sealed(now=NOW + difference), SENDER.address)
    assert skew.value.seconds == difference


def test_the_recipient_is_covered() -> None:
    other = Receiver(Operator(b"\x03" * 32, DOMAIN), clock=lambda: NOW)
    with pytest.raises(WrongSigner):
        other.open(sealed(), SENDER.address)


def test_the_sender_is_covered() -> None:
    with pytest.raises(WrongSigner):
        receiver().open(sealed(), RECIPIENT.address)


def test_a_second_time_is_a_replay() -> None:
    window = receiver()
    window.open(sealed(), SENDER.address)
    with pytest.raises(Replayed):
        window.open(sealed(), SENDER.address)
    window.open(sealed(counter=2), SENDER.address)


def test_a_forgery_does_not_use_up_the_nonce() -> None:
    window = receiver()
    forged = sealed()[:-1] + b"!"
    with pytest.raises(WrongSigner):
        window.open(forged, SENDER.address)
    window.open(sealed(), SENDER.address)


def test_an_unknown_kind() -> None:
    with pytest.raises(MalformedEnvelope):
        receiver().open(b"\x09" + sealed()[1:], SENDER.address)


def test_the_secret_does_not_show() -> None:
    assert "01010101" not in repr(SENDER)
