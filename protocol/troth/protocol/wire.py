"""Frames of the channel between scheduler and nodes: a JSON header, then raw tensor bytes.

``4-byte big-endian header length ‖ header ‖ payload``. The header is one message of the tagged union below, in the one
encoding that ``encode_frame`` produces: a header that decodes but would encode differently (duplicate keys, spaces,
another key order) is refused, so what was signed is what was read. Bytes travel as base64, wei as decimal text.
Every refusal is a WireError.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from troth.protocol.errors import WireError
from troth.protocol.types import SEGMENTS_LIMIT
from troth.protocol.wire_cases import Fetch, Fetched, Furnish, Furnished, Pledge, Pledged, Show, Shown
from troth.protocol.wire_fields import (
    DECODE_LIMIT,
    HEADER_LIMIT,
    PAYLOAD_LIMIT,
    ROWS_LIMIT,
    AddressText,
    Alternatives,
    Bytes32,
    Count,
    DecodeCount,
    PackedLogprobs,
    ProofBytes,
    RowSignature,
    SignatureBytes,
    Text,
    Uint8,
    Uint32,
    Uint64,
    Wei,
)
from troth.protocol.wire_fields import Message as _Message
from troth.protocol.wire_fields import Part as _Part
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
    Judge,
    Judged,
    Noted,
    Proceed,
    Recommit,
    Redeemable,
    Unveil,
    Unveiled,
)
from troth.protocol.wire_reports import Report, Reported


class OrderPart(_Part, frozen=True):
    """Fields of ``types.Order``."""

    execution_class: Bytes32
    request_hash: Bytes32
    scheduler: AddressText
    max_fee: Wei
    deadline: Uint64
    reference_block: Uint64
    nonce: Uint64


class AnnouncementPart(_Part, frozen=True):
    """What a node checks before it serves; see ``assignment.Announcement`` for the meaning.

    ``salt`` is present exactly when the payload starts with the canonical request (first and last segment).
    """

    order: OrderPart
    signature: SignatureBytes
    ends: Annotated[tuple[Uint8, ...], msgspec.Meta(min_length=1, max_length=SEGMENTS_LIMIT)]
    betas: Annotated[tuple[Bytes32, ...], msgspec.Meta(min_length=1, max_length=SEGMENTS_LIMIT)]
    proofs: Annotated[tuple[ProofBytes, ...], msgspec.Meta(min_length=1, max_length=SEGMENTS_LIMIT)]
    salt: Bytes32 | None


class Forward(_Message, frozen=True):
    """Compute ``count`` positions from ``start``; the same message for inference and for verification.

    Payload: ``request_size`` bytes of canonical request (0 unless the announcement carries a salt), then ``count``
    tokens or rows. Rows of segment 0 come behind the ``count`` tokens that they bind (module ``rows``), since segment 1
    needs those to check the signature. ``upstream`` signs the last row sent, absent for tokens. ``emit`` asks the last
    segment for the next token. ``countersignature`` is the scheduler's own signature over the same Row as ``upstream``:
    two of them for one position convict the scheduler. ``review`` goes with an announcement to who was drawn to verify
    the segment a second time, and is the review's id. ``logprobs`` goes with ``emit`` and asks for log probabilities of
    the token and of so many alternatives; a message that asks for none is without the field. Answer: Rows.
    """

    task_id: Bytes32
    segment: Uint8
    attempt: Uint8
    start: Uint32
    count: Count
    kind: Literal["tokens", "rows"]
    emit: bool
    upstream: RowSignature | None = None
    countersignature: SignatureBytes | None = None
    announcement: AnnouncementPart | None = None
    request_size: Annotated[int, msgspec.Meta(ge=0, le=1_048_576)] = 0
    review: Bytes32 | None = None
    logprobs: Alternatives | msgspec.UnsetType = msgspec.UNSET


class Decode(_Message, frozen=True):
    """Go on alone: the pipeline is this one segment of the whole model, and ``start`` follows what was computed.

    The inferencer feeds itself each token that it chooses, without waiting for the next message, and answers with what
    it has from ``start`` on, at least one position and at most ``most``. Asking again for old positions is allowed.
    ``logprobs`` as in Forward, for each token; every Decode of an attempt asks for the same. Answer: Decoded.
    """

    task_id: Bytes32
    segment: Uint8
    attempt: Uint8
    start: Uint32
    most: DecodeCount
    logprobs: Alternatives | msgspec.UnsetType = msgspec.UNSET


class Commit(_Message, frozen=True):
    """The trace is complete at ``positions`` rows: commit to it.

    Payload at the last segment: the generated tokens (``tokens`` of them), since a verifier's prefill never chose
    them. An inferencer answers Committed, a verifier TraceCommitted.
    """

    task_id: Bytes32
    segment: Uint8
    attempt: Uint8
    positions: Uint32
    tokens: Annotated[int, msgspec.Meta(ge=0, le=ROWS_LIMIT)] = 0


class Compare(_Message, frozen=True):
    """To a verifier that has signed its TraceCommitment: rows ``start`` to ``start + count - 1`` of the inferencer.

    Payload: the rows. The message that completes ``positions`` carries ``row`` (the end of the inferencer's chain),
    ``root`` and ``root_signature`` (its TraceRoot) and is answered by Compared; each earlier one by Received.
    """

    task_id: Bytes32
    segment: Uint8
    attempt: Uint8
    inferencer: AddressText
    positions: Uint32
    start: Uint32
    count: Count
    row: RowSignature | None = None
    root: Bytes32 | None = None
    output_hash: Bytes32 | None = None
    root_signature: SignatureBytes | None = None


class Open(_Message, frozen=True):
    """The commitments are on chain: open.

    ``proof`` is the scheduler's VRF proof over ``assignment.sample_alpha``; a node recomputes alpha from its own view
    of the chain. Absent in an exact class, and where the seed is already on chain. ``review`` names the second
    verification that the opening is for. Answer: Opened.
    """

    task_id: Bytes32
    segment: Uint8
    attempt: Uint8
    proof: ProofBytes | None = None
    review: Bytes32 | None = None


class Release(_Message, frozen=True):
    """The task is over: free its cache. Answer: Released."""

    task_id: Bytes32


class Rows(_Message, frozen=True):
    """Payload: ``count`` rows from ``start``. ``row`` signs the last one; ``token`` where Forward asked to emit.

    ``finished`` says that ``token`` is the last: an end token, or the length limit. ``model_microseconds`` is the time
    the model took, as the node says, for the receipt's breakdown only. ``logprobs`` is there where Forward asked,
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
    """Payload: the ``count`` tokens chosen at positions ``start``, start+1, …, then the rows of these positions.

    ``row`` signs the last row. ``finished`` and ``model_microseconds`` as in Rows; ``logprobs`` are one packed entry a
    token.
    """

    start: Uint32
    count: DecodeCount
    row: RowSignature
    finished: Literal["stop", "length"] | None = None
    model_microseconds: Uint32 = 0
    logprobs: Annotated[tuple[PackedLogprobs, ...], msgspec.Meta(max_length=DECODE_LIMIT)] = ()


class Committed(_Message, frozen=True):
    """An inferencer's signed TraceRoot."""

    root: Bytes32
    output_hash: Bytes32
    signature: SignatureBytes


class TraceCommitted(_Message, frozen=True):
    """A verifier's signed TraceCommitment."""

    commitment: Bytes32
    signature: SignatureBytes


class Received(_Message, frozen=True):
    """Part of the inferencer's rows is stored; ``positions`` of them so far."""

    positions: Uint32


class Compared(_Message, frozen=True):
    """A verifier's signed VerdictCommitment; the verdict itself stays hidden until it opens.

    ``other`` is the commitment to the opposite verdict: the two together show that the root is the one that was
    committed to before the rows were sent.
    """

    commitment: Bytes32
    other: Bytes32
    signature: SignatureBytes


class Opened(_Message, frozen=True):
    """Payload: ``tiles`` * 512 bytes, then ``siblings`` * 32 bytes, in the order of the contract's Opening.

    ``salt`` is zero for the inferencer, whose root was posted in the clear, and its ``verdict`` is true.
    """

    root: Bytes32
    verdict: bool
    salt: Bytes32
    tiles: Annotated[int, msgspec.Meta(ge=0, le=255)]
    siblings: Annotated[int, msgspec.Meta(ge=0, le=255 * 40)]


class Released(_Message, frozen=True):
    """The node holds nothing of the task any more."""


class Failure(_Message, frozen=True):
    """A refusal: ``code`` for programs, ``message`` and ``remedy`` for people. Never carries prompt text."""

    code: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    message: Text
    remedy: Text


NodeRequest = Forward | Decode | Commit | Compare | Open | Release
NodeReply = Rows | Decoded | Committed | TraceCommitted | Received | Compared | Opened | Released | Failure
GroupRequest = Tell | Listen | Recall
GroupReply = Told | Heard | Recalled | Failure
OrderRequest = Advance | Proceed | Conclude | Recommit | Judge | Unveil | Inform | Redeemable | Dismiss
CheckRequest = Inquire
CheckReply = Informed | Failure
OrderReply = Rows | Decoded | Concluded | Hidden | Received | Judged | Unveiled | Noted | Released | Failure
CaseRequest = Furnish | Fetch | Pledge | Show
CaseReply = Furnished | Fetched | Pledged | Shown | Failure
Request = NodeRequest | OrderRequest | Report | GroupRequest | CaseRequest | CheckRequest
Reply = NodeReply | OrderReply | Reported | GroupReply | CaseReply | CheckReply
Message = Request | Reply
NODE_REQUESTS = (Forward, Decode, Commit, Compare, Open, Release)
"""What a node answers."""
ORDER_REQUESTS = (Advance, Proceed, Conclude, Recommit, Judge, Unveil, Inform, Redeemable, Dismiss)
"""What a node on tabs answers."""
CHECK_REQUESTS = (Inquire,)
"""What a scheduler answers to verifiers."""
CASE_REQUESTS = (Furnish, Fetch, Pledge, Show)
"""What nodes and schedulers answer about cases of the court."""
SCHEDULER_REQUESTS = (Report,)
"""What a scheduler answers to a node."""
GROUP_REQUESTS = (Tell, Listen, Recall)
"""What a node answers to others that host the same model."""

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
        raise WireError(f"A header has at most {HEADER_LIMIT} bytes", len(encoded), "Send fewer segments per task.")
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
