"""Operators' keys for tests of rings: always the same ones."""

from __future__ import annotations

from collections.abc import Sequence

from troth.protocol import rings
from troth.protocol.hashing import keccak256
from troth.protocol.typed_data import CURVE_ORDER
from troth.protocol.types import Hash32

SCOPE = Hash32(keccak256(b"one segment of one order"))


def keys_of(count: int) -> list[bytes]:
    """Secrets."""
    return [keccak256(b"ring key %d" % number) for number in range(count)]


def outsider() -> bytes:
    """A secret that is in none of these rings."""
    return keccak256(b"outsider")


def negated(secret: bytes) -> bytes:
    """The secret of the opposite point, which has the same abscissa."""
    return (CURVE_ORDER - int.from_bytes(secret, "big")).to_bytes(32, "big")


def ring_of_keys(secrets: Sequence[bytes]) -> tuple[bytes, ...]:
    """The ring of these secrets."""
    return rings.ring_of([rings.public_key(one) for one in secrets])
