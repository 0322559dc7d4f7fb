"""Taking a place: the slice that the chain says, or for a newcomer the one that its scheduler would like best."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import msgspec

from troth.chain.adapter import Chain
from troth.chain.follower import EventFollower
from troth.chain.keystore import Key
from troth.node.configuration import Configuration
from troth.node.errors import ConfigError, OrderRefused
from troth.node.membership import Joining, registration_of
from troth.node.models.folder import find_model
from troth.node.pool.agreement import Agreement, Place, accepted, agreement_of
from troth.node.transactions import carry_out
from troth.overlay.https import naming_errors, pinned_client
from troth.protocol.calls import views
from troth.protocol.errors import ProtocolError
from troth.protocol.sizes import ModelSizes, sizes_of
from troth.protocol.state import Scheduler, State
from troth.protocol.types import Segment
from troth.protocol.wire_reports import SEGMENTS_HELD_LIMIT, HostingPart, SpanPart

log = logging.getLogger(__name__)

LARGEST_ANSWER = 64 * 1024


class _Window(msgspec.Struct, frozen=True):
    slice: tuple[int, int] | None
    segments: tuple[tuple[int, int], ...]


async def placed(
    configuration: Configuration, operator: Key, owner: Key | None, stake: int, *, broadcast: bool
) -> Configuration | dict[str, Any]:
    """The configuration to run with, once registered; or, without `broadcast`, what registering would do.

    A node that is registered loads what the chain says, whatever its file does.

    Raises:
        ConfigError: not registered and no owner to pay the stake, or no scheduler has a place.
        ChainError, OverlayError: chain or scheduler cannot be used.
    """
    async with (
        await Chain.connect(configuration.rpc, configuration.contract, chain_id=configuration.chain_id) as chain,
        EventFollower(chain, configuration.folder / "events.sqlite", start_block=configuration.start_block) as follower,
    ):
        await follower.catch_up()
        known = follower.state.nodes.get(operator.address)
        if known is not None:
            return configuration
        hosted, segments = await _window(configuration, follower.state)
        chosen = replace(configuration, slice=hosted, segments=segments)
        if owner is None:
            remedy = "Name the keyfile of the owner, who pays the stake: --owner-keystore FILE --broadcast."
            raise ConfigError("this node is not registered yet", operator.address, remedy)
        minimum = await chain.read(views.minimum_stake_of(configuration.execution_class))
        call = registration_of(Joining(chosen, operator, owner, "", stake), chain, minimum)
        told = await carry_out(chain, call, owner, broadcast=broadcast)
        if not broadcast:
            return {**told, "slice": f"{hosted.first}:{hosted.end}"}
        log.info("registered for layers %s", hosted)
        return chosen


async def _window(configuration: Configuration, state: State) -> tuple[Segment, tuple[Segment, ...]]:
    agreement = agreement_of(configuration, state)
    scheduler = state.schedulers.get(agreement.scheduler)
    if scheduler is None:
        raise ConfigError("no such scheduler is registered", agreement.scheduler, "Correct auto.scheduler.")
    window = await _ask(scheduler, configuration, agreement.memory_bytes)
    if window.slice is None:
        raise ConfigError(
            f"{scheduler.operator} has no place for a node with this memory",
            agreement.memory_bytes,
            "Lend more (auto.memory_gigabytes), or ask a scheduler that places this class.",
        )
    rules = state.classes[configuration.execution_class]
    sizes = sizes_of(find_model(configuration.folder, configuration.model).config, rules.dtype)
    return taken(window.slice, window.segments, agreement, sizes, state.models[rules.model].layers)


def taken(
    hosted: tuple[int, int], segments: Sequence[tuple[int, int]], agreement: Agreement, sizes: ModelSizes, layers: int
) -> tuple[Segment, tuple[Segment, ...]]:
    """A newcomer's place, held to what its operator agreed to as later orders are; raises ConfigError.

    Before the stake is paid: whoever registers for what it cannot load is drawn for it and loses the stake.
    """
    order = HostingPart(0, *hosted, tuple(SpanPart(*span) for span in segments))
    if not 1 <= len(segments) <= SEGMENTS_HELD_LIMIT:
        raise ConfigError("a node joins 1 to 16 groups", len(segments), "Name another scheduler.")
    try:
        return accepted(order, agreement, Place(), sizes, layers)
    except (OrderRefused, ProtocolError) as error:
        raise ConfigError("the scheduler's place is not taken", error, "Name another one: auto.scheduler.") from error


async def _ask(scheduler: Scheduler, configuration: Configuration, memory_bytes: int) -> _Window:
    path = f"/v1/placement/0x{configuration.execution_class.hex()}/window"
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
    except msgspec.MsgspecError as error:
        raise ConfigError("the scheduler's answer is none", str(error), "Name another one.") from error
