"""What can be wrong with what a group's nodes tell each other.

PrefixError
 ├─ UpdateMalformed      bytes that are no update, or not in its one encoding
 ├─ ChunkingUnusable     a chunk-length array that cannot be used
 ├─ BlocksUnusable       the engine's cache has blocks that do not fit chunks
 └─ GroupFull            one node too many
"""

from __future__ import annotations

from troth.protocol.errors import TrothError


class PrefixError(TrothError):
    """Base of this package's errors."""

    code = "prefixes"


class UpdateMalformed(PrefixError):
    """The bytes are no update of this version, or break its limits; nothing of it was applied."""

    code = "update_malformed"


class ChunkingUnusable(PrefixError):
    """A chunk-length array with a length that is none, or too many of them."""

    code = "chunking_unusable"


class BlocksUnusable(PrefixError):
    """The engine's cache blocks are longer than a chunk's unit, or do not divide it."""

    code = "blocks_unusable"


class GroupFull(PrefixError):
    """A group has as many members as it may; split it."""

    code = "group_full"
