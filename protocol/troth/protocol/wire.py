"""Frames of the channel between scheduler and nodes: a JSON header, then raw tensor bytes.

``4-byte big-endian header length ‖ header ‖ payload``. The header is one message of the tagged union below, in the one
encoding that ``encode_frame`` produces: a header that decodes but would encode differently (duplicate keys, spaces,
another key order) is refused, so what was signed is what was read. Bytes travel as base64.
Every refusal is a WireError.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from troth.protocol.errors import WireError
from troth.protocol.wire_cases import Fetch, Fetched, Furnish, Furnished, Pledge, Pledged, Show, Shown
from troth.protocol.wire_fields import (
    HEADER_LIMIT,
    PAYLOAD_LIMIT,
    Count,
    PackedLogprobs,
    RowSignature,
    SequenceCount,
    Text,
    Uint32,
)
from troth.protocol.wire_fields import Message as _Message
from troth.protocol.wire_group import Heard, Listen, Recall, Recalled, Tell, Told
from troth.protocol.wire_market import (
    Advance,
    Conclude,
    Concluded,
    Dismiss,
    Hidden,
    Inform,
    Informed,
    Inquire,
    Introduce,
    Introduced,
    Judge,
    Judged,
    Noted,
    Poll,
    Polled,
    Proceed,
    Recommit,
    Redeemable,
    Remind,
    Reminded,
    Unveil,
    Unveiled,
)
from troth.protocol.wire_reports import Report, Reported
from troth.protocol.wire_tunnel import Attend, Visited


class Rows(_Message, frozen=True):
    """Payload: ``count`` rows from ``start``. ``row`` signs the last one; ``token`` where a message asked to emit.

    ``finished`` says that ``token`` is the last: an end token, or the length limit. ``model_microseconds`` is the time
    the model took, as the node says, for the receipt's breakdown only. ``logprobs`` is there where the message asked,
    packed as in module ``logprobs``; its reader checks it, so that junk in it costs nobody the rows.
    """

    start: Uint32
    count: Count
    row: RowSignature
    token: Uint32 | None = None
    finished: Literal["stop", "length"] | None = None
    model_microseconds: Uint32 = 0
    logprobs: PackedLogprobs | msgspec.UnsetType = msgspec.UNSET


class Decoded(_Message, frozen=True):
    """Payload: what ``texts`` of those that a Proceed asks for have come to, ``wire_decoding.DecodedPart`` each."""

    texts: SequenceCount


class Received(_Message, frozen=True):
    """Part of the inferencer's rows is stored; ``positions`` of them so far."""

    positions: Uint32


class Released(_Message, frozen=True):
    """The node's cache holds nothing of the order any more."""


class Failure(_Message, frozen=True):
    """A refusal: ``code`` for programs, ``message`` and ``remedy`` for people. Never carries prompt text."""

    code: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,63}\Z")]
    message: Text
    remedy: Text


GroupRequest = Tell | Listen | Recall
GroupReply = Told | Heard | Recalled | Failure
OrderRequest = (
    Advance | Proceed | Conclude | Recommit | Judge | Poll | Unveil | Inform | Redeemable | Remind | Dismiss | Introduce
)
CheckRequest = Inquire
CheckReply = Informed | Failure
OrderReply = (
    Rows
    | Decoded
    | Concluded
    | Hidden
    | Received
    | Judged
    | Polled
    | Unveiled
    | Noted
    | Reminded
    | Released
    | Introduced
    | Failure
)
CaseRequest = Furnish | Fetch | Pledge | Show
CaseReply = Furnished | Fetched | Pledged | Shown | Failure
TunnelReply = Visited | Failure
Request = OrderRequest | Report | GroupRequest | CaseRequest | CheckRequest | Attend
Reply = OrderReply | Reported | GroupReply | CaseReply | CheckReply | TunnelReply
Message = Request | Reply
ORDER_REQUESTS = (
    Advance,
    Proceed,
    Conclude,
    Recommit,
    Judge,
    Poll,
    Unveil,
    Inform,
    Redeemable,
    Remind,
    Dismiss,
    Introduce,
)
"""What a node answers."""
CHECK_REQUESTS = (Inquire,)
"""What a scheduler answers to verifiers."""
CASE_REQUESTS = (Furnish, Fetch, Pledge, Show)
"""What nodes and schedulers answer about cases of the court."""
SCHEDULER_REQUESTS = (Report,)
"""What a scheduler answers to a node."""
GROUP_REQUESTS = (Tell, Listen, Recall)
"""What a node answers to others that host the same model."""
TUNNEL_REQUESTS = (Attend,)
"""What a scheduler answers to nodes to which it lends an endpoint."""

_LENGTH = struct.Struct(">I")
_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded frame; ``payload`` is a view into the received bytes, not a copy."""

    header: Message
    payload: memoryview


def encode_frame(header: Message, payload: bytes | memoryview = b"") -> bytes:
    """Bytes of a frame; raises WireError where the header exceeds its limit."""
    encoded = _ENCODER.encode(header)
    if len(encoded) > HEADER_LIMIT:
        raise WireError(f"A header has at most {HEADER_LIMIT} bytes", len(encoded), "Send fewer segments per order.")
    return b"".join((_LENGTH.pack(len(encoded)), encoded, payload))


def decode_frame(data: bytes | bytearray | memoryview, payload_limit: int = PAYLOAD_LIMIT) -> Frame:
    """The frame in ``data``, checked before anything is allocated; raises WireError and nothing else."""
    view = memoryview(data).cast("B") if len(data) else memoryview(b"")
    if len(view) < _LENGTH.size:
        raise WireError("A frame starts with 4 length bytes", len(view), "Send a whole frame.")
    (size,) = _LENGTH.unpack_from(view)
    start = _LENGTH.size
    if not 0 < size <= HEADER_LIMIT or start + size > len(view):
        raise WireError(f"A header has 1 to {HEADER_LIMIT} bytes, all inside the frame", size, "Send a whole frame.")
    if len(view) - start - size > payload_limit:
        raise WireError(f"A payload has at most {payload_limit} bytes", len(view) - start - size, "Send fewer rows.")
    return Frame(_decode_header(bytes(view[start : start + size])), view[start + size :])


def _decode_header(encoded: bytes) -> Message:
    remedy = "Encode headers with troth.protocol.wire, in the same version."
    try:
        header = _DECODER.decode(encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError("The header is no message of this protocol", str(error)[:300], remedy) from error
    if _ENCODER.encode(header) != encoded:
        raise WireError("The header is not in canonical form", type(header).__name__, remedy)
    return header
