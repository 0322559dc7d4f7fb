"""The models that a dishonest node computes with: the registered one, and changed copies made when they are needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from troth.node.calibration import tampering
from troth.node.configuration import NodeConfiguration
from troth.node.engine.attention_cache import AttentionCache
from troth.node.engine.interface import SessionKey
from troth.node.engine.layers import LayerSlice
from troth.node.engine.torch_engine import TorchEngine
from troth.node.models.folder import find_model

KEPT = 1
"""Changed copies held at a time: each takes 0.4 GB."""


class Fp8Cache(AttentionCache):
    """Keys and values kept as float8."""

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *unused: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return super().update(tampering.through_fp8(keys, -1), tampering.through_fp8(values, -1), layer)


class Skipped(torch.nn.Module):
    """In the place of a layer that is left out."""

    def forward(self, states: torch.Tensor, **_options: Any) -> torch.Tensor:
        return states


def skip(layers: LayerSlice, skipped: Callable[[int, int], bool]) -> None:
    """Leave out the layers for which `skipped(index, count)` holds."""
    for index, layer in enumerate(sorted(layers.held)):
        if skipped(index, len(layers.held)):
            layers.held[layer] = Skipped()


def fp8_cache(layers: LayerSlice) -> None:
    """Keep keys and values as float8."""
    layers.cache_type = Fp8Cache


CHANGES: dict[str, Callable[[LayerSlice], None]] = {
    "int8": partial(tampering.quantise_weights, bits=8),
    "int4": partial(tampering.quantise_weights, bits=4),
    "fp8": tampering.fp8_weights,
    "W8A8": tampering.int8_activations,
    "fp8 cache": fp8_cache,
    "0.3 %": partial(tampering.disturb_weights, share=0.003),
    "0.1 %": partial(tampering.disturb_weights, share=0.001),
    "a layer skipped": partial(skip, skipped=lambda index, count: index == count // 2),
    "early exit": partial(skip, skipped=lambda index, count: index >= count - 3),
    "half the layers": partial(skip, skipped=lambda index, count: index % 2 == 1),
}


def changed(change: Callable[[LayerSlice], None]) -> type[LayerSlice]:
    """Slices that are changed as soon as they are loaded."""

    class Changed(LayerSlice):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            with torch.no_grad():
                change(self)

    return Changed


class Workshop:
    """The models of one process; `honest` may be the toy's, of which there are no copies."""

    def __init__(self, honest: Any, configuration: NodeConfiguration) -> None:
        self.honest = honest
        self._configuration = configuration
        self._variants: dict[str, TorchEngine] = {}
        self._lock = asyncio.Lock()

    async def variant(self, name: str) -> TorchEngine:
        """An engine with a change of `CHANGES`; made in a thread, seconds."""
        async with self._lock:
            if name not in self._variants:
                while len(self._variants) >= KEPT:
                    self._variants.pop(next(iter(self._variants)))
                self._variants[name] = await asyncio.to_thread(self._load, CHANGES[name])
            return self._variants[name]

    async def forget(self, key: SessionKey) -> None:
        """Free one session of every copy."""
        for engine in list(self._variants.values()):
            await engine.forget(key)

    def _load(self, change: Callable[[LayerSlice], None]) -> TorchEngine:
        configuration = self._configuration
        folder = find_model(configuration.folder, configuration.model)
        return TorchEngine(folder, configuration.slice, self.honest.dtype, layers=changed(change))
