"""A slice of a Llama-family model, made of the decoder layers that transformers itself uses.

Only the slice's tensors are read: the embedding where the slice starts at layer 0, the final norm and the head where it
ends at the last layer. Weights in the file's own dtype stay mapped from disk, so that processes on one machine share
them.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

from troth.node.engine.attention_cache import AttentionCache
from troth.node.errors import ModelError
from troth.node.models.folder import ModelFolder
from troth.node.models.weights import TIED_HEAD, read_tensors
from troth.protocol.types import Segment

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"


class LayerSlice:
    """Layers [first, end) with what lies before the first and after the last layer of the model."""

    cache_type: type[AttentionCache] = AttentionCache

    def __init__(
        self, folder: ModelFolder, hosted: Segment, dtype: torch.dtype, device: torch.device, *, widen: bool = False
    ) -> None:
        """Load the slice.

        Args:
            widen: round the weights to `dtype`, then compute in float32; what the reference states are made with.

        Raises:
            ModelError: the slice does not fit the model, or tensors are missing from the folder.
        """
        self.config = AutoConfig.from_pretrained(folder.path)
        self.config._attn_implementation = "sdpa"
        self.hosted = hosted
        self.device = device
        self.total_layers = int(self.config.num_hidden_layers)
        if hosted.end > self.total_layers:
            raise ModelError("the slice ends after the model's last layer", hosted.end, f"Use {self.total_layers}.")
        weights = self._read(folder, dtype, widen)
        self.dtype = torch.float32 if widen else dtype
        self.layers = [self._layer(index, weights) for index in range(hosted.first, hosted.end)]
        self.rotary = LlamaRotaryEmbedding(self.config).to(device)
        self.embedding = weights.get(EMBEDDING)
        self.norm = self._norm(weights)
        self.head = weights.get(TIED_HEAD, self.embedding)

    @property
    def is_last(self) -> bool:
        """Whether the slice includes the model's last layer, and so the norm and the head."""
        return self.hosted.end == self.total_layers

    def _wanted(self, name: str) -> bool:
        tied = bool(self.config.tie_word_embeddings)
        if name.startswith("model.layers."):
            return self.hosted.first <= int(name.split(".")[2]) < self.hosted.end
        if name == EMBEDDING:
            return self.hosted.first == 0 or (tied and self.is_last)
        return self.is_last and (name == FINAL_NORM or (name == TIED_HEAD and not tied))

    def _read(self, folder: ModelFolder, dtype: torch.dtype, widen: bool) -> dict[str, torch.Tensor]:
        weights: dict[str, torch.Tensor] = {}
        for name, tensor in read_tensors(folder, self._wanted):
            rounded = tensor.to(device=self.device, dtype=dtype)
            weights[name] = rounded.float() if widen else rounded
        expected = {EMBEDDING} if self.hosted.first == 0 else set()
        expected |= {FINAL_NORM} if self.is_last else set()
        if missing := expected - weights.keys():
            raise ModelError("tensors are missing from the model folder", sorted(missing), "Import the model again.")
        return weights

    def _layer(self, index: int, weights: dict[str, torch.Tensor]) -> LlamaDecoderLayer:
        with torch.device("meta"):
            layer = LlamaDecoderLayer(self.config, index - self.hosted.first)
        prefix = f"model.layers.{index}."
        own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        try:
            layer.load_state_dict(own, assign=True)
        except RuntimeError as error:
            raise ModelError(f"layer {index} is incomplete", str(error), "Import the model again.") from error
        return layer.eval().requires_grad_(False)

    def _norm(self, weights: dict[str, torch.Tensor]) -> LlamaRMSNorm | None:
        if not self.is_last:
            return None
        with torch.device("meta"):
            norm = LlamaRMSNorm(self.config.hidden_size, eps=self.config.rms_norm_eps)
        norm.load_state_dict({"weight": weights[FINAL_NORM]}, assign=True)
        return norm.eval().requires_grad_(False)

    def new_cache(self, segment: Segment) -> AttentionCache:
        """An empty cache for the layers of a segment."""
        heads = self.config.num_key_value_heads
        head_size = getattr(self.config, "head_dim", None) or self.config.hidden_size // self.config.num_attention_heads
        return self.cache_type(segment.end - segment.first, heads, head_size, self.dtype, self.device)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Rows that enter layer 0; `tokens` is an int64 vector on the slice's device."""
        if self.embedding is None:
            raise ModelError("this slice has no embedding", self.hosted, "Send tokens to a node that hosts layer 0.")
        return torch.nn.functional.embedding(tokens, self.embedding)

    def forward(self, segment: Segment, hidden: torch.Tensor, cache: AttentionCache) -> torch.Tensor:
        """Run (positions, hidden size) rows that follow what the cache holds through a segment; fills the cache."""
        start, count = cache.length, int(hidden.shape[0])
        positions = torch.arange(start, start + count, device=self.device).unsqueeze(0)
        states = hidden.unsqueeze(0)
        rotary = self.rotary(states, position_ids=positions)
        options: dict[str, Any] = {"position_embeddings": rotary, "attention_mask": self._mask(start, count)}
        for offset in range(segment.first, segment.end):
            layer = self.layers[offset - self.hosted.first]
            layer.self_attn.layer_idx = offset - segment.first
            states = layer(states, past_key_values=cache, use_cache=True, **options)
        cache.length = start + count
        if segment.end == self.total_layers and self.norm is not None:
            states = self.norm(states)
        return states[0]

    def _mask(self, start: int, count: int) -> torch.Tensor | None:
        # None lets sdpa apply its own causal mask to a prefill from 0 and nothing to a single position.
        if start == 0 or count == 1:
            return None
        columns = torch.arange(start + count, device=self.device)
        rows = torch.arange(start, start + count, device=self.device)
        return (columns[None, :] <= rows[:, None])[None, None]

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """Head over post-norm rows in the model's dtype, then float32."""
        if self.head is None or not self.is_last:
            raise ModelError("this slice has no head", self.hosted, "Ask a node that hosts the last layer.")
        return torch.nn.functional.linear(rows, self.head).float()
