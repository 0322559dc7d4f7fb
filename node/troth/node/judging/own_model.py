"""A model folder of one's own, on which a client computes answers again: `troth client ask --check self`.

The client knows no torch: it loads this module by its name, and only when its user wants such a check.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from troth.cases.judging import Inputs, Recomputed
from troth.node.court.recomputing import recompute, surprises
from troth.node.engine.interface import Engine
from troth.node.engine.loading import require_registered, torch_engine
from troth.node.errors import ModelError
from troth.node.models.folder import find_model
from troth.protocol.credit import Surprises
from troth.protocol.market.types import ExecutionClass
from troth.protocol.tensors import Dtype
from troth.protocol.types import ModelDescriptor, Segment

CACHE_BYTES = 4 << 30
"""Memory for the attention of one text."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    engine: Engine
    definition: ExecutionClass
    descriptor: ModelDescriptor


class FolderModel:
    """See ``client.orders.seams.OwnModel``. One text at a time; the weights stay in memory."""

    def __init__(self, home: Path, name: str) -> None:
        """``name``: one of the models under ``home``, or the path of a model folder."""
        self._home = home
        self._name = name
        self._loaded: _Loaded | None = None
        self._line = asyncio.Lock()

    async def require(self, descriptor: ModelDescriptor, definition: ExecutionClass) -> None:
        """Load the model for a class, once its weights are those that were registered; raises ModelError."""
        async with self._line:
            loaded = self._loaded
            if loaded is not None and (loaded.descriptor, loaded.definition) == (descriptor, definition):
                return
            await self._drop()
            engine = await asyncio.to_thread(self._load, descriptor, definition)
            self._loaded = _Loaded(engine, definition, descriptor)

    def _load(self, descriptor: ModelDescriptor, definition: ExecutionClass) -> Engine:
        folder = find_model(self._home, self._name)
        require_registered(folder, descriptor)
        return torch_engine(folder, Segment(0, descriptor.layers), definition, cache_bytes=CACHE_BYTES)

    async def recompute(self, inputs: Inputs) -> Recomputed:
        """One prefill of a segment; ``require`` comes first."""
        async with self._line:
            loaded = self._loaded
            if loaded is None:
                raise ModelError("no model is loaded", self._name, "Name the class first.")
            return await recompute(loaded.engine, inputs, loaded.definition, loaded.descriptor)

    async def surprises(self, inputs: Inputs) -> Surprises:
        """How likely an answer's tokens are, over all layers; ``require`` comes first."""
        async with self._line:
            loaded = self._loaded
            if loaded is None:
                raise ModelError("no model is loaded", self._name, "Name the class first.")
            return await surprises(loaded.engine, inputs, Dtype(loaded.definition.dtype), loaded.descriptor)

    async def close(self) -> None:
        """Free it."""
        async with self._line:
            await self._drop()

    async def _drop(self) -> None:
        if self._loaded is not None:
            await self._loaded.engine.close()
            self._loaded = None
