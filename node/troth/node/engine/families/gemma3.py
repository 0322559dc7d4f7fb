"""The text models of the Gemma 3 family: most layers attend to a window only, and have a rotary embedding of their own.

Which layers those are, and how wide the window is, comes from the configuration (`layer_types`, `sliding_window`).
The window is a mask: the cache keeps what lies before it, since a session may go back.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.gemma3.modeling_gemma3 import Gemma3DecoderLayer, Gemma3RMSNorm, Gemma3RotaryEmbedding

from troth.node.engine.families.interface import Rotary
from troth.node.errors import ModelError

SLIDING = "sliding_attention"


class Gemma3:
    """See `interface.Family`."""

    def __init__(self, config: Any, dtype: torch.dtype, device: torch.device) -> None:
        if config.use_bidirectional_attention:
            raise ModelError(
                "the model attends to later positions, so it generates nothing",
                "use_bidirectional_attention",
                "Use a model that generates text.",
            )
        self._config = config
        self._rotary = Gemma3RotaryEmbedding(config).to(device)
        # Rounded like a weight: transformers rounds it too, by 0.2 % at a hidden size of 640, and a float32 reference
        # of a bfloat16 model has to follow, or it would be the reference of another model.
        self._scale = torch.tensor(config.hidden_size**0.5, device=device).to(dtype)

    def layer(self, index: int) -> torch.nn.Module:
        """A decoder layer of the kind that stands at this index."""
        return Gemma3DecoderLayer(self._config, index)

    def norm(self) -> torch.nn.Module:
        """The final norm."""
        return Gemma3RMSNorm(self._config.hidden_size, eps=self._config.rms_norm_eps)

    def attention(self, index: int) -> str:
        """ "sliding_attention" or "full_attention"."""
        return str(self._config.layer_types[index])

    def window(self, kind: str) -> int | None:
        """The configuration's window for sliding attention."""
        return int(self._config.sliding_window) if kind == SLIDING else None

    def rotary(self, states: torch.Tensor, positions: torch.Tensor, kind: str) -> Rotary:
        """Cosines and sines of a kind."""
        cosines, sines = self._rotary(states, positions, kind)
        return cosines, sines

    def embed(self, tokens: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Rows of the table times the square root of the hidden size."""
        return torch.nn.functional.embedding(tokens, table) * self._scale.to(table.dtype)

    def logits(self, rows: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """A linear head, softly capped where the configuration says so."""
        logits = torch.nn.functional.linear(rows, head)
        if (cap := self._config.final_logit_softcapping) is not None:
            logits = torch.tanh(logits / cap) * cap
        return logits.float()
