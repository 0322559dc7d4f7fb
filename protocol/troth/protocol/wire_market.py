"""What a scheduler asks of nodes: inference, checks, and the vouchers that pay for both (docs/reference/protocol.md).

Every message names its order and segment. Papers (``market.papers``) and requests travel in front of the payload, as
many bytes as ``papers_size`` and ``request_size`` say; tokens and rows follow. Signed messages of the market travel as
canonical JSON (``market.canonical``).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from troth.protocol.tensors import COLUMNS_LIMIT
from troth.protocol.wire_fields import (
    ROWS_LIMIT,
    Alternatives,
    Bytes32,
    Count,
    DecodeCount,
    Message,
    RowSignature,
    SequenceCount,
    Uint8,
    Uint32,
    VeiledRow,
)

TRACES_LIMIT = 1 << 14
"""Bytes of two traces with a tile each; the widest tile has 512, and a path of 24 hashes 768."""
TracesSize = Annotated[int, msgspec.Meta(ge=0, le=TRACES_LIMIT)]
SPOKEN_LIMIT = 1 << 23
"""Bytes of what verifiers signed; a request of the longest kind is doubled by its hexadecimal digits."""
CHECKS_PATH = "/v1/checks"
"""Where a scheduler answers the verifiers that it asked; beside its channel for reports."""
PapersSize = Annotated[int, msgspec.Meta(ge=0, le=1 << 18)]
RequestSize = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
SpokenSize = Annotated[int, msgspec.Meta(ge=1, le=SPOKEN_LIMIT)]
RowBytes = Annotated[bytes, msgspec.Meta(max_length=4 * COLUMNS_LIMIT)]
TabNumber = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
SignedWord = Annotated[bytes, msgspec.Meta(max_length=1 << 10)]
TokenCount = Annotated[int, msgspec.Meta(ge=0, le=ROWS_LIMIT)]


class Advance(Message, frozen=True):
    """Compute ``count`` positions from ``start``; for who infers and for who checks.

    The first message of a session brings papers: InferencePapers (``role`` "infer") or CheckPapers ("check"). Payload:
    papers, canonical request (parties of the first and last segment, with the papers), then ``count`` tokens, or rows
    of the segment before; rows of segment 0 come behind the ``count`` tokens that they bind. ``upstream`` is the
    signature over the last row sent, None for tokens; ``veiled`` is in its place where papers hide who signed it.
    ``emit`` asks the last segment's inferencer for the next token.
    Answer: Rows; Received to who checks, since a verifier's rows stay hidden until all have committed.
    """

    order: Bytes32
    segment: Uint8
    role: Literal["infer", "check"]
    start: Uint32
    count: Count
    emit: bool = False
    upstream: RowSignature | None = None
    papers_size: PapersSize = 0
    request_size: RequestSize = 0
    logprobs: Alternatives | msgspec.UnsetType = msgspec.UNSET
    veiled: VeiledRow | msgspec.UnsetType = msgspec.UNSET


class Proceed(Message, frozen=True):
    """To the only segment's inferencer of each of ``texts`` orders: go on alone, each from its own start.

    It feeds itself each token that it chooses. Payload: ``wire_decoding.WantedText`` each. It is answered as soon as
    there is something of any text, with what there is of all of them, at most ``most`` positions each; after a while
    with nothing. A newer Proceed ends the wait of the one before, which is answered with nothing; so there is one at a
    time. Asking again for old positions is allowed. Answer: Decoded.
    """

    texts: SequenceCount
    most: DecodeCount


class Conclude(Message, frozen=True):
    """To an inferencer: the segment is complete at ``positions`` rows. Payload at the last segment: the answer's
    ``tokens``. Between the first and the last segment ``tokens`` alone says how many were written; 0: all positions
    after the session's first message. Answer: Concluded; the node says in its result how many prompt positions its
    cache had."""

    order: Bytes32
    segment: Uint8
    positions: Uint32
    tokens: TokenCount = 0


class Concluded(Message, frozen=True):
    """Payload: the Signed[Result] as canonical JSON. It is on stable storage, with the trace, before it is sent.

    ``last_row``: where only hashes of rows travel, the last segment's last row, little-endian, for an order's client;
    empty where rows travel, and once a node has forgotten it. ``imprints``: in a class that names imprints, of the last
    segment, the Signed[Imprints] as canonical JSON.
    """

    last_row: RowBytes = b""
    imprints: SignedWord = b""


class Recommit(Message, frozen=True):
    """To a verifier that has computed ``positions`` rows: commit to the own trace. Payload at the last segment: the
    answer's ``tokens``. Answer: Hidden."""

    order: Bytes32
    segment: Uint8
    positions: Uint32
    tokens: TokenCount = 0


class Hidden(Message, frozen=True):
    """Payload: a verifier's Signed[TraceCommitment]."""


class Judge(Message, frozen=True):
    """To a verifier that has committed: rows ``start`` to ``start + count - 1`` of the inferencer.

    The message that completes ``positions`` carries ``row``, the end of the inferencer's chain, and is answered by
    Judged; each earlier one by Received.
    """

    order: Bytes32
    segment: Uint8
    positions: Uint32
    start: Uint32
    count: Count
    row: RowSignature | None = None


class Judged(Message, frozen=True):
    """Payload: a verifier's Signed[Verdict], then ``traces`` bytes of ShownTraces where it does not accept and yet is
    owed its work."""

    traces: TracesSize = 0


class Introduce(Message, frozen=True):
    """To a node: tell the key by which it signs, of which the chain has a hash alone. Answer: Introduced."""


class Introduced(Message, frozen=True):
    """Payload: the compressed key, 33 bytes; its account is the node's operator, so that it needs no signature."""


class Poll(Message, frozen=True):
    """To a verifier of a veiled class that has given its verdict: sign it once more, as one of a ring (``ballots``).

    Payload: the ring's compressed keys, 33 bytes each, ascending. Answer: Polled.
    """

    order: Bytes32
    segment: Uint8


class Polled(Message, frozen=True):
    """Payload: the ring signature over a Ballot with the verdict's opinion."""


class Unveil(Message, frozen=True):
    """To an inferencer or a verifier of a check: open the tiles that the client's second secret picks.

    Payload: Commitments. Answer: Unveiled.
    """

    order: Bytes32
    segment: Uint8
    role: Literal["infer", "check"]
    papers_size: PapersSize


class Unveiled(Message, frozen=True):
    """Payload: an Opened as canonical JSON, sealed to the order's reply key; only the client reads it."""


class Inform(Message, frozen=True):
    """To a verifier that has given its verdict, where one of the segment rejects: what all of them signed, so that it
    can go to court alone. Payload: Spoken. Answer: Noted."""

    order: Bytes32
    segment: Uint8
    size: SpokenSize


class Inquire(Message, frozen=True):
    """From a verifier that was not informed, to its scheduler at CHECKS_PATH. Answer: Informed."""

    order: Bytes32
    segment: Uint8


class Informed(Message, frozen=True):
    """Payload: Spoken as canonical JSON."""


class Redeemable(Message, frozen=True):
    """To a node: a newer voucher of its tab with this scheduler, which acknowledges work. Payload: Signed[Voucher].
    Answer: Noted."""


class Noted(Message, frozen=True):
    """The voucher, or what verifiers signed, is on the node's disk."""


class Remind(Message, frozen=True):
    """To a node: say what this scheduler promised on their tab and has not acknowledged, numbers above ``after`` first.

    A scheduler asks at each start: its records may be lost, or an old copy. Answer: Reminded.
    """

    after: TabNumber = 0


class Reminded(Message, frozen=True):
    """Payload: a Reminder (``market.reminders``), a page of it."""


class Dismiss(Message, frozen=True):
    """Nothing more is asked of this order: free its cache. Traces stay as long as they may be asked for. Answer:
    Released."""

    order: Bytes32
