"""A newcomer's place: the slice that its scheduler would like best, held to what its operator agreed to."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import msgspec

from troth.node.configuration import NodeConfiguration
from troth.node.errors import ConfigError, HostingRefused
from troth.node.models.folder import find_model
from troth.node.pool.agreement import AutoLimits, LastHostingOrder, accepted
from troth.node.pool.contacts import Contacts, OperatorContact
from troth.protocol.errors import ProtocolError
from troth.protocol.sizes import ModelSizes, sizes_of
from troth.protocol.types import Hash32, Segment
from troth.protocol.wire_reports import HostingPart, SpanPart
from troth.transport.https import naming_errors, pinned_client

LARGEST_ANSWER = 64 * 1024


class _Window(msgspec.Struct, frozen=True):
    slice: tuple[int, int] | None
    segments: tuple[tuple[int, int], ...]


async def place_for(
    configuration: NodeConfiguration, agreement: AutoLimits, contacts: Contacts, *, dtype: int, layers: int
) -> tuple[Segment, tuple[Segment, ...]]:
    """Slice and segments for a newcomer; raises ConfigError where there is no place that may be taken."""
    known = [one for one in contacts.schedulers() if one.operator == agreement.scheduler]
    if not known:
        raise ConfigError("no such scheduler is registered", agreement.scheduler, "Correct auto.scheduler.")
    window = await _ask(known[0], configuration.execution_class, agreement.memory_bytes)
    if window.slice is None:
        raise ConfigError(
            f"{agreement.scheduler} has no place for a node with this memory",
            agreement.memory_bytes,
            "Lend more (auto.memory_gigabytes), or ask a scheduler that places this class.",
        )
    sizes = sizes_of(find_model(configuration.folder, configuration.model).config, dtype)
    return taken(window.slice, window.segments, agreement, sizes, layers)


def taken(
    hosted: tuple[int, int], segments: Sequence[tuple[int, int]], agreement: AutoLimits, sizes: ModelSizes, layers: int
) -> tuple[Segment, tuple[Segment, ...]]:
    """A newcomer's place, held to what its operator agreed to as later orders are; raises ConfigError.

    Before the stake is paid: whoever registers for what it cannot load is drawn for it and loses the stake.
    """
    order = HostingPart(0, *hosted, tuple(SpanPart(*span) for span in segments))
    if not 1 <= len(segments) <= agreement.most_groups:
        what = f"a node joins 1 to {agreement.most_groups} groups"
        raise ConfigError(what, len(segments), "Name another scheduler.")
    try:
        return accepted(order, agreement, LastHostingOrder(), sizes, layers)
    except (HostingRefused, ProtocolError) as error:
        raise ConfigError("the scheduler's place is not taken", error, "Name another one: auto.scheduler.") from error


async def _ask(scheduler: OperatorContact, execution_class: Hash32, memory_bytes: int) -> _Window:
    path = f"/v1/placement/0x{execution_class.hex()}/window"
    with naming_errors(scheduler.endpoint):
        async with (
            pinned_client(scheduler.endpoint, scheduler.tls_key_hash) as client,
            client.stream("GET", path, params={"memory_bytes": memory_bytes}) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise ConfigError("the scheduler refused", f"HTTP {answer.status_code}", "Does it serve the class?")
            body = bytearray()
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) > LARGEST_ANSWER:
                    raise ConfigError("the scheduler's answer is too large", len(body), "Name another one.")
    try:
        return msgspec.json.decode(bytes(body), type=_Window)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError("the scheduler's answer is none", str(error), "Name another one.") from error
