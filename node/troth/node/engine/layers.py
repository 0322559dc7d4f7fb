"""A slice of a model, made of the decoder layers that transformers itself uses; `families` knows how.

Only the slice's tensors are read: the embedding where the slice starts at layer 0, the final norm and the head where it
ends at the last layer. Weights in the file's own dtype stay mapped from disk, so that processes on one machine share
them.
"""

from __future__ import annotations

import torch
from transformers import AutoConfig

from troth.node.engine.attention_cache import AttentionCache
from troth.node.engine.families import family_of
from troth.node.engine.layer_arguments import LayerArguments
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
        self.family = family_of(self.config, dtype, device)
        weights = self._read(folder, dtype, widen)
        self.dtype = torch.float32 if widen else dtype
        self.layers = [self._layer(index, weights) for index in range(hosted.first, hosted.end)]
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

    def _layer(self, index: int, weights: dict[str, torch.Tensor]) -> torch.nn.Module:
        with torch.device("meta"):
            layer = self.family.layer(index)
        prefix = f"model.layers.{index}."
        own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        try:
            layer.load_state_dict(own, assign=True)
        except RuntimeError as error:
            raise ModelError(f"layer {index} is incomplete", str(error), "Import the model again.") from error
        return layer.eval().requires_grad_(False)

    def _norm(self, weights: dict[str, torch.Tensor]) -> torch.nn.Module | None:
        if not self.is_last:
            return None
        with torch.device("meta"):
            norm = self.family.norm()
        norm.load_state_dict({"weight": weights[FINAL_NORM]}, assign=True)
        return norm.eval().requires_grad_(False)

    def new_cache(self, segment: Segment) -> AttentionCache:
        """An empty cache for the layers of a segment."""
        heads = self.config.num_key_value_heads
        head_size = getattr(self.config, "head_dim", None) or self.config.hidden_size // self.config.num_attention_heads
        return self.cache_type(segment.end - segment.first, heads, head_size, self.dtype, self.device)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Rows that enter layer 0; `tokens` are int64 on the slice's device."""
        if self.embedding is None:
            raise ModelError("this slice has no embedding", self.hosted, "Send tokens to a node that hosts layer 0.")
        return self.family.embed(tokens, self.embedding)

    def arguments(self, states: torch.Tensor, start: int) -> LayerArguments:
        """What the layers take besides (sequences, positions, hidden size) states, whose positions begin at `start`."""
        return LayerArguments(self.family, states, start, self.config._attn_implementation)

    def forward(self, segment: Segment, hidden: torch.Tensor, cache: AttentionCache) -> torch.Tensor:
        """Run (positions, hidden size) rows that follow what the cache holds through a segment; fills the cache."""
        start, count = cache.length, int(hidden.shape[0])
        states = hidden.unsqueeze(0)
        arguments = self.arguments(states, start)
        for index in range(segment.first, segment.end):
            layer = self.layers[index - self.hosted.first]
            layer.self_attn.layer_idx = index - segment.first
            states = layer(states, past_key_values=cache, use_cache=True, **arguments.of(index))
        cache.length = start + count
        if segment.end == self.total_layers and self.norm is not None:
            states = self.norm(states)
        return states[0]

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """Head over post-norm rows in the slice's dtype, then float32."""
        if self.head is None or not self.is_last:
            raise ModelError("this slice has no head", self.hosted, "Ask a node that hosts the last layer.")
        return self.family.logits(rows, self.head)
