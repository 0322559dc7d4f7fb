"""Where a model's layers are cut into segments, packed into one word."""

from __future__ import annotations

from troth.protocol.errors import InvalidField
from troth.protocol.types import SEGMENTS_LIMIT, Hash32


def pack_ends(ends: tuple[int, ...]) -> Hash32:
    """Segment ends as one word; raises InvalidField for more than 32 of them or one that is no byte above 0."""
    if not 0 < len(ends) <= SEGMENTS_LIMIT or not all(0 < end <= 255 for end in ends):
        raise InvalidField("A layer split has 1 to 32 ends between 1 and 255", ends, "Use fewer or shorter segments.")
    return Hash32(bytes(ends).ljust(32, b"\0"))


def unpack_ends(packed: Hash32) -> tuple[int, ...]:
    """Segment ends of a word; raises InvalidField if an end follows a zero."""
    ends = packed.rstrip(b"\0")
    if 0 in ends:
        raise InvalidField("Segment ends have no gap", packed, "Take the word from the TaskOpened event.")
    return tuple(ends)
