"""The Llama family: every layer attends to everything before it."""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

from troth.node.engine.families.interface import Rotary


class Llama:
    """See `interface.Family`."""

    def __init__(self, config: Any, dtype: torch.dtype, device: torch.device) -> None:
        self._config = config
        self._rotary = LlamaRotaryEmbedding(config).to(device)

    def layer(self, index: int) -> torch.nn.Module:
        """A decoder layer."""
        return LlamaDecoderLayer(self._config, index)

    def norm(self) -> torch.nn.Module:
        """The final norm."""
        return LlamaRMSNorm(self._config.hidden_size, eps=self._config.rms_norm_eps)

    def attention(self, index: int) -> str:
        """One kind for all layers."""
        return "full_attention"

    def window(self, kind: str) -> int | None:
        """None: no window."""
        return None

    def rotary(self, states: torch.Tensor, positions: torch.Tensor, kind: str) -> Rotary:
        """Cosines and sines."""
        cosines, sines = self._rotary(states, position_ids=positions)
        return cosines, sines

    def embed(self, tokens: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Rows of the table as they are."""
        return torch.nn.functional.embedding(tokens, table)

    def logits(self, rows: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """A linear head."""
        return torch.nn.functional.linear(rows, head).float()
