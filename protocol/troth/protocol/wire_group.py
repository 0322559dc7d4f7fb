"""What nodes of one model tell and ask each other (PlanetServe, section 3.3; docs/explanation/forwarding.md).

A group's members tell what their caches hold and how loaded they are. An entry, the member that a client's request
reached, listens to the tokens that the node that serves it chooses, and asks verifiers for what they signed.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from troth.protocol.wire_fields import (
    DECODE_LIMIT,
    Bytes32,
    HeaderPart,
    Message,
    PackedLogprobs,
    SignatureBytes,
    Uint32,
)

COMMON_LENGTHS_LIMIT = 16
"""Prompt lengths that one member proposes."""
HEARD_LIMIT = DECODE_LIMIT
"""Tokens in one answer to Listen."""

Microseconds = Annotated[int, msgspec.Meta(ge=0, le=600_000_000)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
Requests = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]


class LoadPart(HeaderPart, frozen=True):
    """How loaded a node is, as ``routing.prefixes.update.NodeLoad`` means it: mean latency of a request, requests that
    wait and run, how many run at once, time for one prompt token, prompt tokens still to be computed, and requests
    taken since it started (rising, modulo 2**32)."""

    latency: Microseconds
    queued: Requests
    running: Requests
    capacity: Annotated[int, msgspec.Meta(ge=1, le=0xFFFF)]
    pace: Nanoseconds
    pending: Uint32
    taken: Uint32 = 0


class Tell(Message, frozen=True):
    """Payload: an update of what this member's cache holds (``hash_radix.codec``). Answer: Told.

    ``share`` is the member's part of the group's naming key: secret to the group, drawn when the member started.
    ``lengths`` are the common prompt lengths that its Sentry proposes, in tokens, ascending.
    """

    share: Bytes32
    lengths: Annotated[tuple[Uint32, ...], msgspec.Meta(max_length=COMMON_LENGTHS_LIMIT)] = ()


class Told(Message, frozen=True):
    """The update was read. ``whole`` asks for a snapshot next, since one before it is missing here."""

    load: LoadPart
    whole: bool = False


class Listen(Message, frozen=True):
    """What was chosen from token ``start`` of an order's answer on, as soon as there is something. Answer: Heard.

    ``salt`` is the request's: only who has the request may listen.
    """

    order: Bytes32
    salt: Bytes32
    start: Uint32


class Heard(Message, frozen=True):
    """Payload: ``count`` tokens, 4 bytes each, from ``start`` of the answer on; none after a while of silence.

    ``signature`` is the node's over ``market.bodies.Said``: the answer from its first token to the last one here.
    ``finished`` says that this one ends it. The rest of the payload, if any, is the node's signed Result as canonical
    JSON. ``logprobs`` as in Decoded.
    """

    start: Uint32
    count: Annotated[int, msgspec.Meta(ge=0, le=HEARD_LIMIT)]
    finished: Literal["stop", "length"] | None = None
    signature: SignatureBytes | None = None
    logprobs: Annotated[tuple[PackedLogprobs, ...], msgspec.Meta(max_length=HEARD_LIMIT)] = ()


class Recall(Message, frozen=True):
    """What you signed when you checked a segment of an order: your commitment, or your verdict. Answer: Recalled.

    Whoever ordered it gets both anyway; neither says anything of a prompt or an answer.
    """

    order: Bytes32
    segment: Annotated[int, msgspec.Meta(ge=0, le=255)]
    kind: Literal["commitment", "verdict"]


class Recalled(Message, frozen=True):
    """Payload: the signed word as canonical JSON; nothing while there is none."""
