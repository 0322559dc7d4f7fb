"""Which class of hop failed: what a client may conclude from what it saw.

A relay can always lie about the next one, so a claim convicts a pair: the hop that is named and the one before it.
"""

from __future__ import annotations

from troth.overlay.cells.format import EndReason
from troth.transport.errors import CircuitFailed, CircuitSilent

_WORDS = {
    EndReason.FINISHED: "it closed the circuit",
    EndReason.PROTOCOL: "it saw cells that are none",
    EndReason.TAMPERED: "cells were changed, repeated, swapped or left out before it",
    EndReason.UNKNOWN_RELAY: "its directory does not name the next relay",
    EndReason.UNREACHABLE: "the next relay cannot be reached",
    EndReason.BUSY: "it takes no more circuits now",
    EndReason.EVICTED: "its memory was full",
    EndReason.QUOTA: "the circuit used up its share",
    EndReason.IDLE: "the circuit was idle",
    EndReason.DRAINING: "it is about to stop",
    EndReason.HANDSHAKE: "it refused the handshake",
    EndReason.DESTROYED: "the next relay closed the circuit",
}
_NEXT_FAILED = frozenset({EndReason.UNREACHABLE, EndReason.DESTROYED})


def hop_class(position: int, length: int) -> str:
    """guard, middle or proxy, for a hop of a path of `length`; path where the position is unknown."""
    if not 1 <= position <= length:
        return "path"
    if position == length:
        return "proxy"
    return "guard" if position == 1 else "middle"


def claimed(by: int, reason: EndReason, length: int) -> CircuitFailed:
    """Hop number `by` said BROKEN under its own layer."""
    failed = by
    if reason in _NEXT_FAILED:
        failed = min(by + 1, length)
    elif reason is EndReason.TAMPERED:
        failed = max(by - 1, 1)
    words = f"hop {by} says that {_WORDS[reason]}"
    return CircuitFailed(hop_class(failed, length), failed, words)


def guard_ended(reason: EndReason | None, length: int) -> CircuitFailed:
    """The guard ended the circuit without a word under its layer, or its link broke (None)."""
    words = "its link broke" if reason is None else f"it ended the circuit: {_WORDS[reason]}"
    return CircuitFailed(hop_class(1, length), 1, words)


def false_layer(layer: int, length: int) -> CircuitFailed:
    """A cell came back whose layer number `layer` does not fit: that hop or the one before it changed it."""
    return CircuitFailed(hop_class(layer, length), layer, f"a cell came back changed at layer {layer}")


def silent(after: int, seconds: float, length: int) -> CircuitSilent:
    """The hops up to `after` answered, the next one did not; behind the last one is the destination."""
    words = f"it did not answer within {seconds:g} s"
    if after == length:
        return CircuitSilent("destination", 0, words + ", and every hop is alive", "Wait longer, or try another one.")
    return CircuitSilent(hop_class(after + 1, length), after + 1, words)
