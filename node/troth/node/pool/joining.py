"""Taking a place on the per-task contract: the slice that the chain says, or the one that a scheduler offers."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.follower import EventFollower
from troth.chain.keystore import Key
from troth.node.configuration import Configuration
from troth.node.errors import ConfigError
from troth.node.membership import Joining, registration_of
from troth.node.pool.agreement import agreement_of
from troth.node.pool.task_contacts import TaskContacts
from troth.node.pool.window import place_for
from troth.node.transactions import carry_out
from troth.protocol.calls import views
from troth.protocol.state import State
from troth.protocol.types import Segment

log = logging.getLogger(__name__)


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
    contacts = TaskContacts(lambda: state)
    rules = state.classes[configuration.execution_class]
    layers = state.models[rules.model].layers
    agreement = agreement_of(configuration, contacts)
    return await place_for(configuration, agreement, contacts, dtype=rules.dtype, layers=layers)
