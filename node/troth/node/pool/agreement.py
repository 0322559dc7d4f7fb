"""What an operator has agreed to lend of a machine, from whom a slice may be taken, how large and how often."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, cast

from troth.node.configuration import NodeConfiguration
from troth.node.errors import ConfigError, HostingRefused
from troth.node.pool.contacts import Contacts
from troth.protocol.sizes import ModelSizes
from troth.protocol.types import Address, Segment
from troth.protocol.wire_reports import HostingPart

LENT_SHARE = 0.4
"""Of the memory that is there, unless the operator says how much: a node that moves holds both slices for a while."""

Kind = Literal["cpu", "cuda", "mps"]
MOST_GROUPS = 2
"""Groups that the market's registry lets a node be in."""


def device_kind(device: str) -> Kind:
    """The kind of a torch device such as cuda:1."""
    kind = device.partition(":")[0]
    return cast(Kind, kind) if kind in ("cuda", "mps") else "cpu"


def weight_bytes(device: str, cache_bytes: int, limit: int | None) -> int:
    """Memory for weights: the operator's `limit`, or what the cache leaves of a share of what the device has."""
    return limit if limit is not None else max(0, _lendable_bytes(device) - cache_bytes)


def _lendable_bytes(device: str) -> int:
    if device_kind(device) == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(torch.device(device))[1] * LENT_SHARE)
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * LENT_SHARE)


def cache_tokens(cache_bytes: int, hosted: Segment, sizes: ModelSizes) -> int:
    """Positions that fit in the cache of every hosted layer; the cache's bytes where their size is not known."""
    return cache_bytes // max(1, sizes.key_value * (hosted.end - hosted.first))


@dataclass(frozen=True, slots=True)
class AutoLimits:
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
    most_groups: int = MOST_GROUPS


def agreement_of(configuration: NodeConfiguration, contacts: Contacts) -> AutoLimits:
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
    return AutoLimits(named, memory, auto.pause_seconds)


@dataclass(frozen=True, slots=True)
class LastHostingOrder:
    """Where a node stands: the number of the last order that it carried out, and how long ago."""

    number: int = -1
    seconds_ago: float = float("inf")


def accepted(
    order: HostingPart, agreement: AutoLimits, place: LastHostingOrder, sizes: ModelSizes, layers: int
) -> tuple[Segment, tuple[Segment, ...]]:
    """Slice and segments of an order that may be carried out; raises HostingRefused naming the limit it breaks."""
    if order.number <= place.number:
        raise HostingRefused("the order is not newer than the last one", order.number, "Send a new number.")
    if place.seconds_ago < agreement.pause_seconds:
        left = agreement.pause_seconds - place.seconds_ago
        raise HostingRefused("this node has moved lately", f"{left:.0f} s to wait", "Order it again later.")
    spans = [(order.first, order.end), *((part.first, part.end) for part in order.segments)]
    if any(not order.first <= first < end <= min(order.end, layers) for first, end in spans):
        raise HostingRefused(
            "the order is no slice of the model with segments inside", spans, f"It has {layers} layers."
        )
    if len(set(spans[1:])) != len(spans) - 1:
        raise HostingRefused("the order names a segment twice", spans, "Name each once.")
    if len(order.segments) > agreement.most_groups:
        raise HostingRefused(
            "the order names more groups than a node may be in", len(order.segments), f"Name {agreement.most_groups}."
        )
    hosted, *segments = (Segment(first, end) for first, end in spans)
    needed = sizes.of_slice(hosted, layers)
    if needed > agreement.memory_bytes:
        raise HostingRefused(
            "the slice does not fit", f"{needed} of {agreement.memory_bytes} bytes", "Order fewer layers."
        )
    return hosted, tuple(segments)
