"""The set-up handshake: both ends get the same keys, and nobody but the registered relay can answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.circuits.handshake import ClientShare, RelayIdentity
from troth.transport.errors import HandshakeRefused, UnknownDestination

IDENTITY = RelayIdentity(b"n" * 32, X25519PrivateKey.generate())
RELAY = RelayDescriptor(PinnedAddress("127.0.0.1", 9001, IDENTITY.name), IDENTITY.public, "0xoperator")


def test_both_ends_derive_the_same_four_different_keys() -> None:
    share = ClientShare.new(RELAY)
    reply, theirs = IDENTITY.answer(share.request())
    ours = share.finish(reply)
    assert ours == theirs
    assert len({ours.forward, ours.forward_pad, ours.backward, ours.backward_pad}) == 4


def test_an_impostor_with_the_name_but_another_key_is_refused() -> None:
    share = ClientShare.new(RELAY)
    impostor = RelayIdentity(IDENTITY.name, X25519PrivateKey.generate())
    with pytest.raises(HandshakeRefused, match="does not hold its registered key"):
        share.finish(impostor.answer(share.request())[0])


def test_a_request_for_another_relay_is_refused() -> None:
    with pytest.raises(HandshakeRefused, match="another relay"):
        RelayIdentity(b"o" * 32, IDENTITY.secret).answer(ClientShare.new(RELAY).request())


def test_the_key_under_another_name_gives_another_proof() -> None:
    """A relay whose entry was copied under a second name cannot be mistaken for it."""
    share = ClientShare.new(replace(RELAY, place=PinnedAddress("127.0.0.1", 9001, b"o" * 32)))
    reply, _ = IDENTITY.answer(ClientShare(RELAY, share.secret).request())
    with pytest.raises(HandshakeRefused):
        share.finish(reply)


@pytest.mark.parametrize("place", [0, 31, 32, 63])
def test_a_changed_answer_is_refused(place: int) -> None:
    share = ClientShare.new(RELAY)
    reply = bytearray(IDENTITY.answer(share.request())[0])
    reply[place] ^= 1
    with pytest.raises(HandshakeRefused):
        share.finish(bytes(reply))


def test_an_answer_fits_one_set_up_only() -> None:
    old = ClientShare.new(RELAY)
    reply, _ = IDENTITY.answer(old.request())
    with pytest.raises(HandshakeRefused):
        ClientShare.new(RELAY).finish(reply)


def test_the_same_request_twice_gives_different_keys() -> None:
    request = ClientShare.new(RELAY).request()
    assert IDENTITY.answer(request)[1] != IDENTITY.answer(request)[1]


def test_points_of_small_order_are_refused() -> None:
    request = ClientShare.new(RELAY).request()[:33] + bytes(32)
    with pytest.raises(HandshakeRefused, match="small order"):
        IDENTITY.answer(request)
    with pytest.raises(HandshakeRefused, match="small order"):
        ClientShare.new(RELAY).finish(bytes(64))


def test_another_version_is_refused() -> None:
    with pytest.raises(HandshakeRefused, match="version"):
        IDENTITY.answer(b"\x02" + ClientShare.new(RELAY).request()[1:])


def test_secrets_do_not_show() -> None:
    share = ClientShare.new(RELAY)
    keys = share.finish(IDENTITY.answer(share.request())[0])
    assert keys.forward.hex() not in repr(keys)
    assert "secret" not in repr(share)
    assert "secret" not in repr(IDENTITY)


@pytest.mark.parametrize(("host", "port", "name"), [("", 1, b"n" * 32), ("h", 0, b"n" * 32), ("h", 1, b"n")])
def test_places_that_cannot_be_are_refused(host: str, port: int, name: bytes) -> None:
    with pytest.raises(UnknownDestination):
        PinnedAddress(host, port, name)


def test_a_handshake_key_has_a_length() -> None:
    with pytest.raises(UnknownDestination):
        RelayDescriptor(RELAY.place, b"short")
