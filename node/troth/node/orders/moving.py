"""A running node changes its slice: loads, changes on chain by its operator's key, and serves on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.node.configuration import NodeConfiguration
from troth.node.engine.interface import WholeEngine
from troth.node.errors import ModelError
from troth.node.models.folder import find_model
from troth.node.orders.context import NodeContext
from troth.node.orders.hosting import SliceHosting
from troth.node.pool.agreement import MOST_GROUPS, agreement_of, device_kind, weight_bytes
from troth.node.pool.contacts import MarketContacts
from troth.node.pool.resident import Lent, Resident
from troth.node.registration.asking import asks_for, asks_of
from troth.protocol.market.calls import PartCall, build
from troth.protocol.market.parts import Part
from troth.protocol.market.types import Ask, Contracts
from troth.protocol.sizes import ModelSizes, sizes_of
from troth.protocol.types import Address, Segment

PATIENCE = 60.0
"""Seconds to wait until an own transaction shows in the followed chain."""
UNKNOWN_SIZES = ModelSizes(0, 0, 0, 0, tied=False)


def change_slice(
    contracts: Contracts, operator: Address, hosted: Segment, segments: Sequence[Segment], asks: Sequence[Ask]
) -> PartCall:
    """Registry.changeSlice by owner or operator: all groups change in one block."""
    words = (operator, hosted.first, hosted.end, tuple(segments), tuple(asks))
    return build(contracts, Part.REGISTRY, "changeSlice", *words)


class Moving:
    """Moves one node; ``whole`` is what its operator asks for all layers, where that is configured."""

    def __init__(
        self, context: NodeContext, hosting: SliceHosting, market: Market, key: Key, whole: Ask | None = None
    ) -> None:
        self._context = context
        self._hosting = hosting
        self._market = market
        self._key = key
        self._whole = whole

    async def move(self, hosted: Segment, segments: Sequence[Segment]) -> None:
        """Load ``hosted``, change to it on chain with an ask for each segment, and serve it.

        What is under way goes on, and former layers stay as long as they are needed. If the transaction fails, the new
        ones go again.

        Raises:
            ChainRejected: the registry refuses, for example since the slice was changed lately.
            ModelError: the layers cannot be loaded; nothing was sent.
        """
        context, market, me = self._context, self._market, self._key.address
        layers = context.engine.layers
        asks = asks_for(segments, asks_of(context.ground.state, me, layers), layers, self._whole)
        call = change_slice(market.contracts, me, hosted, segments, [asks[one] for one in segments])
        simulation = await market.simulate(call, me)
        if simulation.rejection is not None:
            raise ChainRejected(call.call.function, simulation.rejection)
        async with self._hosting.expecting(hosted):
            receipt = await market.execute(call, self._key)
            await context.ground.until(lambda: context.ground.block >= receipt.block, PATIENCE)


def resident_of(
    configuration: NodeConfiguration, context: NodeContext, moving: Moving, sessions: Callable[[], int], *, auto: bool
) -> Resident:
    """Reports for a node; moves only with ``auto``, and never where the engine holds whole models only.

    Raises ConfigError where [auto] is not clear.
    """
    contacts = MarketContacts(lambda: context.ground.state)
    moves = auto and not isinstance(context.engine, WholeEngine)
    weights = weight_bytes(configuration.device, configuration.cache_bytes, configuration.auto.memory_bytes)
    return Resident(
        context,
        Lent(weights, configuration.cache_bytes),
        device_kind(configuration.device),
        _sizes(configuration, context),
        contacts=contacts,
        sessions=sessions,
        agreement=agreement_of(configuration, contacts, MOST_GROUPS) if moves else None,
        move=moving.move,
    )


def _sizes(configuration: NodeConfiguration, context: NodeContext) -> ModelSizes:
    """Of the model's layers; an engine that needs no folder reports without them."""
    try:
        return sizes_of(find_model(configuration.folder, configuration.model).config, context.engine.dtype)
    except ModelError:
        return UNKNOWN_SIZES
