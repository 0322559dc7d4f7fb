"""What every verified quote comes to, whichever vendor signed it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VerifiedQuote:
    """A quote whose signatures lead to its vendor's root.

    Attributes:
        registers: 32 bytes, SHA-256 over what was measured.
        bound: what the guest had signed: 64 bytes of a processor, 32 of a device.
        until: Unix seconds at which the vendor's word about the machine ends.
    """

    registers: bytes
    bound: bytes
    until: int


def digest_of(tag: bytes, *registers: bytes) -> bytes:
    """SHA-256 over registers of fixed lengths, in this order."""
    return hashlib.sha256(b"troth measurement 1 " + tag + b"\x00" + b"".join(registers)).digest()
