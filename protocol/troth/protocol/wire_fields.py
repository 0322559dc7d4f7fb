"""What the fields of a header may hold: each has its bounds, so that nothing from a peer is trusted for size."""

from __future__ import annotations

from typing import Annotated

import msgspec

from troth.protocol.logprobs import ALTERNATIVES_LIMIT, PACKED_LIMIT

HEADER_LIMIT = 65_536
"""Bytes of a header; nothing larger is parsed."""
PAYLOAD_LIMIT = 64 * 1024 * 1024
"""Bytes of a payload unless the caller sets less; larger traces travel in several messages."""
ROWS_LIMIT = 65_536
"""Rows or tokens in one message."""
DECODE_LIMIT = 64
"""Positions of one text in an answer to Proceed."""
SEQUENCES_LIMIT = 1_024
"""Texts in one Proceed."""

Uint8 = Annotated[int, msgspec.Meta(ge=0, le=0xFF)]
Uint32 = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)]
Uint64 = Annotated[int, msgspec.Meta(ge=0, le=0x7FFF_FFFF_FFFF_FFFF)]
Count = Annotated[int, msgspec.Meta(ge=1, le=ROWS_LIMIT)]
SequenceCount = Annotated[int, msgspec.Meta(ge=0, le=SEQUENCES_LIMIT)]
DecodeCount = Annotated[int, msgspec.Meta(ge=1, le=DECODE_LIMIT)]
Bytes32 = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
SignatureBytes = Annotated[bytes, msgspec.Meta(min_length=65, max_length=65)]
RingBytes = Annotated[bytes, msgspec.Meta(max_length=33 * 64)]
PossessionBytes = Annotated[bytes, msgspec.Meta(max_length=65 + 32 * 64)]
AddressText = Annotated[str, msgspec.Meta(pattern=r"^0x[0-9a-fA-F]{40}\Z")]
Text = Annotated[str, msgspec.Meta(max_length=2_000)]
Alternatives = Annotated[int, msgspec.Meta(ge=0, le=ALTERNATIVES_LIMIT)]
PackedLogprobs = Annotated[bytes, msgspec.Meta(max_length=PACKED_LIMIT)]


class Message(msgspec.Struct, frozen=True, tag_field="type", tag=True, forbid_unknown_fields=True):
    """A header: the class name is its ``type``; an unknown field is refused."""


class HeaderPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of a header."""


class RowSignature(HeaderPart, frozen=True):
    """Chain position and signature of the last row of a message; it covers all rows before it.

    ``previous`` is the link of the row before this one (zero at position 0).
    """

    position: Uint32
    row_hash: Bytes32
    previous: Bytes32
    signature: SignatureBytes


class VeiledRow(HeaderPart, frozen=True):
    """The same without a signature: ``proof`` that the sender holds one by a key of ``ring`` (``possession``).

    ``ring``: compressed keys, 33 bytes each, ascending.
    """

    position: Uint32
    row_hash: Bytes32
    previous: Bytes32
    ring: RingBytes
    proof: PossessionBytes
