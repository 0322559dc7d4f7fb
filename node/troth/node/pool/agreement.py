"""What an operator has agreed to: from whom a slice may be taken, how large, how often. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from troth.node.configuration import Configuration
from troth.node.errors import ConfigError, OrderRefused
from troth.node.pool.contacts import Contacts
from troth.node.pool.hardware import weight_bytes
from troth.protocol.sizes import ModelSizes
from troth.protocol.types import Address, Segment
from troth.protocol.wire_reports import SEGMENTS_HELD_LIMIT, HostingPart

MOST_GROUPS = 2
"""Groups that the market's registry lets a node be in."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The limits of `troth node start --auto`.

    Args:
        scheduler: whose orders are carried out; a report to any other says that this node does not move.
        memory_bytes: of weights; the cache has its own.
        pause_seconds: between two moves.
        most_groups: that the chain lets a node be in.
    """

    scheduler: Address
    memory_bytes: int
    pause_seconds: float
    most_groups: int = SEGMENTS_HELD_LIMIT


def agreement_of(configuration: Configuration, contacts: Contacts, most_groups: int = SEGMENTS_HELD_LIMIT) -> Agreement:
    """What [auto] says, with the only bonded scheduler where it names none; raises ConfigError where that is not clear.

    Whoever stakes can register as a scheduler: with several, a node obeys none that its operator has not named.
    """
    auto = configuration.auto
    bonded = [one.operator for one in contacts.schedulers()]
    named = auto.scheduler
    if named is None:
        if len(bonded) != 1:
            shown = ", ".join(bonded) or "none is registered"
            raise ConfigError(
                "whose slices are to be taken is not clear", shown, "Name it in node.toml: auto.scheduler."
            )
        named = bonded[0]
    memory = weight_bytes(configuration.device, configuration.cache_bytes, auto.memory_bytes)
    return Agreement(named, memory, auto.pause_seconds, most_groups)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands: the number of the last order that it carried out, and how long ago."""

    number: int = -1
    seconds_ago: float = float("inf")


def accepted(
    order: HostingPart, agreement: Agreement, place: Place, sizes: ModelSizes, layers: int
) -> tuple[Segment, tuple[Segment, ...]]:
    """Slice and segments of an order that may be carried out; raises OrderRefused naming the limit it breaks."""
    if order.number <= place.number:
        raise OrderRefused("the order is not newer than the last one", order.number, "Send a new number.")
    if place.seconds_ago < agreement.pause_seconds:
        left = agreement.pause_seconds - place.seconds_ago
        raise OrderRefused("this node has moved lately", f"{left:.0f} s to wait", "Order it again later.")
    spans = [(order.first, order.end), *((part.first, part.end) for part in order.segments)]
    if any(not order.first <= first < end <= min(order.end, layers) for first, end in spans):
        raise OrderRefused("the order is no slice of the model with segments inside", spans, f"It has {layers} layers.")
    if len(set(spans[1:])) != len(spans) - 1:
        raise OrderRefused("the order names a segment twice", spans, "Name each once.")
    if len(order.segments) > agreement.most_groups:
        raise OrderRefused(
            "the order names more groups than a node may be in", len(order.segments), f"Name {agreement.most_groups}."
        )
    hosted, *segments = (Segment(first, end) for first, end in spans)
    needed = sizes.of_slice(hosted, layers)
    if needed > agreement.memory_bytes:
        raise OrderRefused(
            "the slice does not fit", f"{needed} of {agreement.memory_bytes} bytes", "Order fewer layers."
        )
    return hosted, tuple(segments)
