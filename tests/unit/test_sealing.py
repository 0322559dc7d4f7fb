"""What is sealed opens for one key, in one place, unchanged; nothing else does."""

from __future__ import annotations

import os

import pytest

from troth.transport.errors import SealBroken
from troth.transport.sealing import public_key, seal, unseal


def test_the_holder_reads_what_was_sealed() -> None:
    secret = os.urandom(32)
    sealed = seal(b"three tiles", public_key(secret), b"order 1")
    assert len(sealed) == len(b"three tiles") + 48, "the encapsulated key and the tag"
    assert unseal(sealed, secret, b"order 1") == b"three tiles"


@pytest.mark.parametrize("change", ["key", "context", "byte", "length"])
def test_nothing_else_opens_it(change: str) -> None:
    secret = os.urandom(32)
    sealed = seal(b"three tiles", public_key(secret), b"order 1")
    given = {
        "key": (sealed, os.urandom(32), b"order 1"),
        "context": (sealed, secret, b"order 2"),
        "byte": (bytes([sealed[0] ^ 1]) + sealed[1:], secret, b"order 1"),
        "length": (sealed[:20], secret, b"order 1"),
    }[change]
    with pytest.raises(SealBroken):
        unseal(*given)


@pytest.mark.parametrize("key", [b"", b"short", bytes(32)])
def test_no_key_no_seal(key: bytes) -> None:
    with pytest.raises(SealBroken):
        seal(b"three tiles", key, b"order 1")
