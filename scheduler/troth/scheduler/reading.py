"""Hashes in the paths and headers of requests."""

from __future__ import annotations

from troth.protocol.types import Hash32
from troth.scheduler.errors import BadRequest


def read_hash(text: str, what: str) -> Hash32:
    """32 bytes from 0x-hexadecimal text; raises BadRequest naming `what`."""
    try:
        raw = bytes.fromhex(text.removeprefix("0x"))
    except ValueError as error:
        raise BadRequest(f"The {what} is not hexadecimal", text[:80], "Send 0x and 64 digits.") from error
    if len(raw) != 32:
        raise BadRequest(f"A {what} has 32 bytes", len(raw), "Send 0x and 64 digits.")
    return Hash32(raw)
