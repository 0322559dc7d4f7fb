"""What a node tells its scheduler about itself, and what it is asked in return (Parallax, section 3.3).

All of it is the node's own word: a scheduler weighs it against what it measures itself. Whole numbers only, so that
there is one encoding.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from troth.protocol.wire_fields import AddressText, Bytes32, HeaderPart, Message, Uint8, Uint32, Uint64

LINKS_LIMIT = 16
"""Link times in one report, and probes asked for in one answer."""
SEGMENTS_HELD_LIMIT = 16
"""Segments whose groups one node may join; the contract's own limit."""

Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Microseconds = Annotated[int, msgspec.Meta(ge=0, le=600_000_000)]


class LinkPart(HeaderPart, frozen=True):
    """The time of one way to another node, as this one measured it."""

    node: AddressText
    microseconds: Microseconds


class Report(Message, frozen=True):
    """A node's word about itself, every 1 to 2 s. Answer: Reported.

    ``sequence`` rises with each report, over restarts too. ``memory_bytes`` is what its operator lends for weights,
    ``cache_bytes`` for the cache. The slice ``[first, end)`` is loaded and serving; 0 and 0 before any is. Times are
    for one position in one layer: alone (``decode``) and in a prefill, 0 where nothing was measured. ``cache_tokens``
    is the room in each hosted layer, what runs included; ``running`` the sessions held. ``movable``: the operator has
    agreed to be given slices by this very scheduler. ``leaving``: it is being stopped. ``round_trip`` is that of its
    last report.
    """

    execution_class: Bytes32
    sequence: Uint64
    device: Literal["cpu", "cuda", "mps"]
    memory_bytes: Uint64
    cache_bytes: Uint64
    first: Uint8
    end: Uint8
    decode_nanoseconds: Nanoseconds
    prefill_nanoseconds: Nanoseconds
    cache_tokens: Uint64
    running: Uint32
    movable: bool
    leaving: bool
    round_trip: Microseconds = 0
    links: Annotated[tuple[LinkPart, ...], msgspec.Meta(max_length=LINKS_LIMIT)] = ()


class SpanPart(HeaderPart, frozen=True):
    """Layers ``[first, end)``."""

    first: Uint8
    end: Uint8


class HostingPart(HeaderPart, frozen=True):
    """Host ``[first, end)`` and join the groups of ``segments``. ``number`` rises with each new order to this node."""

    number: Uint64
    first: Uint8
    end: Uint8
    segments: Annotated[tuple[SpanPart, ...], msgspec.Meta(min_length=1, max_length=SEGMENTS_HELD_LIMIT)]


class Reported(Message, frozen=True):
    """The report was taken. ``hosting`` is what the node should host, if it should host something else.

    ``probes`` are registered nodes to which it should measure the way; their endpoints are for it to look up on chain.
    """

    hosting: HostingPart | None = None
    probes: Annotated[tuple[AddressText, ...], msgspec.Meta(max_length=LINKS_LIMIT)] = ()
