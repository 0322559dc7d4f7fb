"""What is sent around a case of the court, at a channel of its own (``PATH``): evidence, commitments, what is shown.

Every message names its case. A reviewer is furnished by whoever carries the case on and fetches what it lacks from
scheduler, node and the other reviewers; every byte is checked against what was signed before the case was opened, so
that it does not matter who sends it.
"""

from __future__ import annotations

from typing import Literal

from troth.protocol.wire_fields import Bytes32, Message, Uint8, Uint64

PATH = "/v1/cases"
"""Where a node or scheduler serves these messages; others may call here than at its channel for work."""
PIECE_LIMIT = 1 << 22
"""Bytes of one piece of rows."""
SHOWN_LIMIT = 1 << 20
"""Bytes of a canonical reveal: at most 255 tiles with their siblings."""

Material = Literal["evidence", "rows", "opening"]


class Furnish(Message, frozen=True):
    """To a reviewer: a piece of what it needs, of ``size`` bytes in all. Payload: the bytes from ``start`` on.

    ``material`` is "evidence" (canonical Evidence, whole), "rows" (the salt of the order's heads, then the rows that
    ``segment`` gave; pieces in order) or "opening" (root and salt of the judged trace). Answer: Furnished.
    """

    case: Bytes32
    material: Material
    segment: Uint8
    start: Uint64
    size: Uint64


class Furnished(Message, frozen=True):
    """``held`` bytes of it are on the receiver's disk; the sender goes on from there."""

    held: Uint64


class Fetch(Message, frozen=True):
    """From a drawn reviewer to who may hold something of the case. Answer: Fetched."""

    case: Bytes32
    material: Material
    segment: Uint8
    start: Uint64 = 0


class Fetched(Message, frozen=True):
    """Payload: at most PIECE_LIMIT bytes of ``size`` in all; size 0: the sender does not hold it."""

    size: Uint64


class Pledge(Message, frozen=True):
    """To a reviewer: its signed commitment in this round. Answer: Pledged."""

    case: Bytes32
    round: Uint8


class Pledged(Message, frozen=True):
    """Payload: Signed[ReviewCommitment] as canonical JSON; ``ready`` False and no payload: ask later."""

    ready: bool


class Show(Message, frozen=True):
    """To a reviewer ("reviewer") or the judged node ("node"): what it shows now that all have committed.

    Answer: Shown.
    """

    case: Bytes32
    round: Uint8
    party: Literal["reviewer", "node"]


class Shown(Message, frozen=True):
    """Payload: Reveal or NodeReveal as canonical JSON, its tiles in the clear; ``ready`` False: ask later."""

    ready: bool
