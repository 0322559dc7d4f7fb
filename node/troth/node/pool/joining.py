"""Taking a place in a market: the slice that the chain says, or for a newcomer the one that its scheduler offers."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from troth.chain.keystore import Key
from troth.chain.market_follower import MarketFollower
from troth.node.configuration import NodeConfiguration
from troth.node.errors import ConfigError
from troth.node.orders.running import connect
from troth.node.organisations.credits import with_deployment
from troth.node.pool.agreement import MOST_GROUPS, agreement_of
from troth.node.pool.contacts import MarketContacts
from troth.node.pool.window import place_for
from troth.node.registration.asking import asks_for
from troth.node.registration.configured_slice import text_of
from troth.node.registration.membership import Joining, join
from troth.protocol.market.errors import InvalidOrder
from troth.protocol.market.state import State
from troth.protocol.market.types import ExecutionClass, Role
from troth.protocol.market.views import class_of
from troth.protocol.types import ModelDescriptor

log = logging.getLogger(__name__)


async def placed(
    configuration: NodeConfiguration, operator: Key, owner: Key | None, stake: str, *, broadcast: bool
) -> NodeConfiguration | dict[str, Any]:
    """The configuration to run with, once registered; or, without ``broadcast``, what registering would do.

    Raises:
        ConfigError: not registered and no owner to pay the stake, no ask, or no scheduler with a place.
        ChainError, OverlayError: chain or scheduler cannot be used.
    """
    events = configuration.folder / "market-events.sqlite"
    async with await connect(configuration) as market, MarketFollower(market, events) as follower:
        await follower.catch_up()
        state = follower.state
        payer = None if owner is None else owner.address
        configuration = await with_deployment(configuration, market.contracts, state, operator.address, payer)
        if operator.address in state.parties:
            return _known(state, configuration, operator)
        execution_class, model = _class(state, configuration)
        if owner is None:
            remedy = "Name the keyfile of the owner, who pays the stake: --owner-keystore FILE --broadcast."
            raise ConfigError("this node is not registered yet", operator.address, remedy)
        contacts = MarketContacts(lambda: state)
        agreement = agreement_of(configuration, contacts, MOST_GROUPS)
        hosted, segments = await place_for(
            configuration, agreement, contacts, dtype=execution_class.dtype, layers=model.layers
        )
        chosen = replace(configuration, slice=hosted, segments=segments)
        asks = asks_for(segments, {}, model.layers, configuration.auto.ask)
        joining = Joining(chosen, operator, owner, "", stake, lambda _asset: asks)
        told = await join(market, joining, broadcast=broadcast)
        if not broadcast:
            return {**told, "slice": text_of(hosted), "segments": [text_of(one) for one in segments]}
        log.info("registered for layers %s", hosted)
        return chosen


def _known(state: State, configuration: NodeConfiguration, operator: Key) -> NodeConfiguration:
    """A node that is registered loads what the chain says, whatever its file does."""
    party = state.parties[operator.address]
    if party.role is not Role.NODE or party.execution_class != configuration.execution_class:
        what = "this operator is registered, and not as a node of the configured class"
        raise ConfigError(what, operator.address, "Correct node.class, or use another operator.")
    return configuration


def _class(state: State, configuration: NodeConfiguration) -> tuple[ExecutionClass, ModelDescriptor]:
    try:
        return class_of(state, configuration.execution_class)
    except InvalidOrder as error:
        shown = "0x" + configuration.execution_class.hex()
        remedy = "Check node.class and market.factory, or register it: `troth model register`."
        raise ConfigError("the execution class is not registered here", shown, remedy) from error
