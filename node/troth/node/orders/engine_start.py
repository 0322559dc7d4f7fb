"""How a node that starts comes to its engine: what it hosts is found on chain, loaded, proved to be of its class, warm.

A node whose engine computes anything else than its class says is refused here, before it serves: what it signed would
take its stake.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Protocol

import numpy as np

from troth.node.configuration import NodeConfiguration
from troth.node.engine.head import require_head
from troth.node.engine.imprints import require_imprints
from troth.node.engine.interface import Arithmetic, Engine, SessionKey
from troth.node.engine.loading import WeightStamps, stamps_before
from troth.node.engine.probe import require_class
from troth.node.errors import ModelError
from troth.node.models.folder import ModelFolder, find_model
from troth.node.orders.context import NodeContext
from troth.protocol.market.errors import InvalidOrder
from troth.protocol.market.heads import head_of
from troth.protocol.market.state import Party, State
from troth.protocol.market.types import ExecutionClass
from troth.protocol.market.views import class_of
from troth.protocol.tensors import Dtype
from troth.protocol.types import ModelDescriptor

log = logging.getLogger(__name__)

WARM_UP = SessionKey(bytes(32), 0, 0)
WARM_UP_POSITIONS = 4


class MarketEngineLoader(Protocol):
    """Brings an engine up; see ``loading.load_engine``."""

    def __call__(
        self,
        configuration: NodeConfiguration,
        execution_class: Arithmetic,
        descriptor: ModelDescriptor,
        *,
        verify: bool,
    ) -> Engine:
        """Seconds of work; called in a thread."""


class EngineStart:
    """The engine of one configuration."""

    def __init__(self, configuration: NodeConfiguration, load: MarketEngineLoader, *, verify_weights: bool) -> None:
        self._configuration = configuration
        self._load = load
        self._verify_weights = verify_weights
        self.stamps: WeightStamps = {}
        """What the weights' files were before anything was read from them."""

    def model(self) -> ModelFolder:
        """The configured model's files; raises ModelError where there are none."""
        return find_model(self._configuration.folder, self._configuration.model)

    def class_in(self, state: State) -> tuple[ExecutionClass, ModelDescriptor]:
        """The configured class and its model, as registered; raises ModelError where the class is not."""
        wanted = self._configuration.execution_class
        try:
            return class_of(state, wanted)
        except InvalidOrder as error:
            shown = "0x" + wanted.hex()
            raise ModelError(
                "the execution class is not registered", shown, "Register it: `troth model register`."
            ) from error

    async def load(self, party: Party | None, execution_class: Arithmetic, descriptor: ModelDescriptor) -> Engine:
        """Load the slice that the node's registration says, or else its file; raises ModelError."""
        configuration = self._configuration
        if party is not None and party.hosted is not None and party.hosted != configuration.slice:
            log.warning("on chain this node hosts %s, not what node.toml says: loading that", party.hosted)
            configuration = replace(configuration, slice=party.hosted)
        self.stamps = await asyncio.to_thread(stamps_before, configuration)
        return await asyncio.to_thread(
            self._load, configuration, execution_class, descriptor, verify=self._verify_weights
        )

    async def prove(self, context: NodeContext, execution_class: ExecutionClass) -> None:
        """Warm the engine up, and compare what it computes with what its class says; raises ModelError."""
        engine = context.engine
        await _warm_up(context)
        await require_class(engine, execution_class)
        if head_of(execution_class.name):
            await require_head(engine, execution_class, self.model())
        if engine.slice.end == engine.layers:
            await asyncio.to_thread(require_imprints, execution_class, self.model)


async def _warm_up(context: NodeContext) -> None:
    """A few positions through every layer: the first call of a process is many times slower than the next ones."""
    engine = context.engine
    tokens, dtype = np.zeros(1, np.int64), np.dtype(Dtype(engine.dtype).storage)
    inputs = tokens if engine.slice.first == 0 else np.zeros((1, engine.hidden_size), dtype)
    rows = (await engine.forward(WARM_UP, engine.slice, 0, inputs)).rows
    for position in range(1, WARM_UP_POSITIONS):
        computed = await engine.forward(WARM_UP, engine.slice, position, inputs)
        context.meter.note(engine.slice.end - engine.slice.first, 1, computed.seconds)
    if engine.slice.end == engine.layers:
        await engine.logits(rows)
    await engine.forget(WARM_UP)
