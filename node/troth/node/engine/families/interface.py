"""What a slice asks of a model family."""

from __future__ import annotations

from typing import Protocol

import torch

Rotary = tuple[torch.Tensor, torch.Tensor]


class Family(Protocol):
    """Parts of one model and what goes into them. Layers are counted from the model's first, whatever the slice."""

    def layer(self, index: int) -> torch.nn.Module:
        """A decoder layer without weights; its attention reads and writes the cache under `self_attn.layer_idx`."""

    def norm(self) -> torch.nn.Module:
        """The norm after the last layer, without weights."""

    def attention(self, index: int) -> str:
        """The kind of a layer's attention: layers of one kind share rotary embedding and mask."""

    def window(self, kind: str) -> int | None:
        """How many positions, its own among them, one position attends to; None for all before it."""

    def rotary(self, states: torch.Tensor, positions: torch.Tensor, kind: str) -> Rotary:
        """Cosines and sines in the dtype of the states; `positions` has the shape (1, positions)."""

    def embed(self, tokens: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Rows that enter layer 0: tokens of any shape, with one more axis of the hidden size."""

    def logits(self, rows: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """The head over post-norm rows, in their dtype, then float32."""
