"""What nodes of one model tell and ask each other (PlanetServe, section 3.3; docs/forwarding.md).

A group's members tell what their caches hold and how loaded they are. An entry, the member that a client's request
reached, asks another to serve it, and listens to the tokens that this one chooses.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from troth.protocol.wire_fields import (
    DECODE_LIMIT,
    Bytes32,
    Message,
    PackedLogprobs,
    Part,
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


class LoadPart(Part, frozen=True):
    """How loaded a node is, as ``hash_radix.load.Load`` means it: mean latency of a request, requests that wait and
    run, how many run at once, time for one prompt token, prompt tokens still to be computed, and requests taken since
    it started (rising, modulo 2**32)."""

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


class Take(Message, frozen=True):
    """Will you serve this task, for which you are a candidate? A client's request for it entered at the sender.

    Answer: Taken. ``salt_hash`` is keccak256 of the request's salt, so that only who has the request can listen.
    """

    task_id: Bytes32
    salt_hash: Bytes32


class Taken(Message, frozen=True):
    """``way``: it will serve; or it is overloaded, for about ``retry_after`` seconds; or it had the request before."""

    way: Literal["serve", "overloaded", "circle"]
    load: LoadPart
    retry_after: Annotated[int, msgspec.Meta(ge=0, le=60)] = 0


class Listen(Message, frozen=True):
    """What was chosen from token ``start`` of the answer on, as soon as there is something. Answer: Heard."""

    task_id: Bytes32
    salt: Bytes32
    start: Uint32


class Heard(Message, frozen=True):
    """Payload: ``count`` tokens, 4 bytes each, from ``start`` of the answer on; none after a while of silence.

    ``finished`` says that the last of them ends the answer; then ``signature`` is the node's over Served.
    ``logprobs`` as in Decoded.
    """

    start: Uint32
    count: Annotated[int, msgspec.Meta(ge=0, le=HEARD_LIMIT)]
    finished: Literal["stop", "length"] | None = None
    signature: SignatureBytes | None = None
    logprobs: Annotated[tuple[PackedLogprobs, ...], msgspec.Meta(max_length=HEARD_LIMIT)] = ()
