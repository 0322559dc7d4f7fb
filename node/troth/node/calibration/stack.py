"""A whole model as a stack of layers for many prompts at once: what calibration computes with.

The node's engine packs whatever sequences there are. Here a batch of equally long ones runs through the same decoder
layers, with places where an experiment can change something: the layers that run, the attention cache, the inputs of
each layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache

from troth.node.engine.layers import LayerSlice
from troth.node.engine.packing import Past
from troth.node.models.folder import ModelFolder
from troth.protocol.types import Segment

CacheFactory = Callable[[], DynamicCache]


class Stack:
    """All layers of a model; states are (sequences, positions, hidden size) in ``dtype``.

    Args:
        widen: round the weights to `dtype`, then compute in float32.
        attention: "sdpa", "eager", or "math", which is sdpa without a kernel that fuses it.
        device: of torch.
    """

    def __init__(
        self,
        folder: ModelFolder,
        dtype: torch.dtype,
        *,
        widen: bool = False,
        attention: str = "sdpa",
        device: str = "cpu",
    ) -> None:
        layers = folder.layers
        self.device = torch.device(device)
        self._slice = LayerSlice(folder, Segment(0, layers), dtype, self.device, widen=widen)
        self.use_attention(attention)
        self.dtype = self._slice.dtype
        self.total = layers
        self.skipped: frozenset[int] = frozenset()
        self.cache: CacheFactory = DynamicCache

    @property
    def layers(self) -> Sequence[Any]:
        """The decoder layers, for experiments that change their weights or hook their inputs."""
        return self._slice.layers

    def use_attention(self, implementation: str) -> None:
        """Choose how attention is computed from now on."""
        self._backends = [SDPBackend.MATH] if implementation == "math" else []
        self._slice.config._attn_implementation = "sdpa" if implementation == "math" else implementation

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (sequences, positions) as the rows that enter layer 0."""
        return self._slice.embed(tokens.to(self.device)).to(self.dtype)

    def forward(
        self, states: torch.Tensor, segment: Segment, cache: DynamicCache | None = None, start: int = 0
    ) -> torch.Tensor:
        """States after a segment, post-norm at the last one; positions begin at `start`, `cache` holds those before."""
        kept = cache if cache is not None else self.cache()
        layers = {index: _pass_on if index in self.skipped else layer for index, layer in self._slice.held.items()}
        with sdpa_kernel(self._backends) if self._backends else nullcontext():
            return self._slice.decoder.run(segment, states, layers, Past(start, kept.update))

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """What the head makes of post-norm states, in float32, on the host."""
        return self._slice.logits(states).cpu()


def _pass_on(states: torch.Tensor, **_: Any) -> torch.Tensor:
    """In the place of a layer that is left out."""
    return states
