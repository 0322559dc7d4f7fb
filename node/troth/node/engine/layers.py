"""Layers of a model, made of the decoder layers that transformers itself uses; `families` knows how.

Only the tensors of the layers that are held are read: the embedding where a segment starts at layer 0, the final norm
and the head where one ends at the last layer. Weights in the file's own dtype stay mapped from disk, so that processes
on one machine share them.

What the layers of one pass are called with: rotary embeddings and masks, made once for each kind of attention.

What of a model some segments need: which layers, and what lies before the first and after the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AutoConfig

from troth.node.engine.attention_cache import AttentionCache
from troth.node.engine.families import family_of
from troth.node.engine.families.interface import Family
from troth.node.errors import ModelError
from troth.node.models.folder import ModelFolder
from troth.node.models.weights import TIED_HEAD, read_tensors
from troth.protocol.types import Segment


class LayerArguments:
    """Arguments for layers that run `states` (sequences, positions, hidden size) as positions start, start+1, …

    Args:
        implementation: "sdpa", "eager" or "troth_blocks": they take their masks in different forms.
    """

    def __init__(self, family: Family, states: torch.Tensor, start: int, implementation: str) -> None:
        self._family = family
        self._states = states
        self._start = start
        self._implementation = implementation
        self._made: dict[str, dict[str, Any]] = {}

    def of(self, layer: int) -> dict[str, Any]:
        """Keyword arguments of a layer, counted from the model's first."""
        kind = self._family.attention(layer)
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

    def _make(self, kind: str) -> dict[str, Any]:
        states, end = self._states, self._start + self._states.shape[1]
        positions = torch.arange(self._start, end, device=states.device).unsqueeze(0)
        return {
            "position_embeddings": self._family.rotary(states, positions, kind),
            "attention_mask": self._mask(self._family.window(kind), end),
        }

    def _mask(self, window: int | None, end: int) -> torch.Tensor | None:
        # sdpa masks a prefill from 0 by itself and needs nothing for a single position, unless a window ends before;
        # eager attention needs to be told, in numbers.
        simple = (self._start == 0 or end - self._start == 1) and (window is None or end < window)
        if self._implementation == "sdpa" and simple:
            return None
        device, dtype = self._states.device, self._states.dtype
        allowed = allowed_positions(self._start, end, window, device)[None, None]
        if self._implementation != "eager":
            return allowed
        return torch.zeros(allowed.shape, dtype=dtype, device=device).masked_fill(~allowed, torch.finfo(dtype).min)


def allowed_positions(start: int, end: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Which positions (columns, from 0) the positions from `start` to `end` (rows) attend to, as booleans."""
    columns, rows = torch.arange(end, device=device)[None, :], torch.arange(start, end, device=device)[:, None]
    allowed = columns <= rows
    return allowed if window is None else allowed & (columns > rows - window)


@dataclass(frozen=True, slots=True)
class Needs:
    """Layers by their index in the model; ``entry`` is the embedding, ``ending`` the final norm and the head."""

    layers: frozenset[int] = frozenset()
    entry: bool = False
    ending: bool = False

    @classmethod
    def of(cls, segments: Iterable[Segment], total: int) -> Needs:
        """What segments of a model with ``total`` layers need."""
        needed = tuple(segments)
        return cls(
            frozenset(layer for segment in needed for layer in range(segment.first, segment.end)),
            any(segment.first == 0 for segment in needed),
            any(segment.end == total for segment in needed),
        )

    def __or__(self, other: Needs) -> Needs:
        """What both need."""
        return Needs(self.layers | other.layers, self.entry or other.entry, self.ending or other.ending)

    def __sub__(self, other: Needs) -> Needs:
        """What this needs and the other does not."""
        return Needs(self.layers - other.layers, self.entry and not other.entry, self.ending and not other.ending)

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self.layers) or self.entry or self.ending


EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"


@dataclass(frozen=True, slots=True)
class Parts:
    """What was read: decoder layers by their index, and the tensors of entry and ending by their name."""

    layers: Mapping[int, torch.nn.Module] = field(default_factory=dict)
    outer: Mapping[str, torch.Tensor] = field(default_factory=dict)


class LayerSlice:
    """The layers that some segments need, with what lies before the first and after the last layer of the model."""

    cache_type: type[AttentionCache] = AttentionCache

    def __init__(
        self, folder: ModelFolder, hosted: Segment, dtype: torch.dtype, device: torch.device, *, widen: bool = False
    ) -> None:
        """Load a slice.

        Args:
            widen: round the weights to `dtype`, then compute in float32; what the reference states are made with.

        Raises:
            ModelError: the slice does not fit the model, or tensors are missing from the folder.
        """
        self.config = AutoConfig.from_pretrained(folder.path)
        self.config._attn_implementation = "sdpa"
        self.device = device
        self.total_layers = int(self.config.num_hidden_layers)
        self.family = family_of(self.config, dtype, device)
        self.dtype = torch.float32 if widen else dtype
        self._folder = folder
        self._file_dtype = dtype
        self._widen = widen
        self.held: dict[int, torch.nn.Module] = {}
        self._outer: dict[str, torch.Tensor] = {}
        self.norm: torch.nn.Module | None = None
        self.take(self.read(self.needs(hosted)))

    @property
    def layers(self) -> Sequence[torch.nn.Module]:
        """The decoder layers that are held, in the model's order."""
        return [self.held[index] for index in sorted(self.held)]

    def needs(self, *segments: Segment) -> Needs:
        """What segments need, held or not; ModelError if one is not of this model."""
        for segment in segments:
            if segment.end > self.total_layers:
                remedy = f"Use {self.total_layers}."
                raise ModelError("the slice ends after the model's last layer", segment.end, remedy)
        return Needs.of(segments, self.total_layers)

    @property
    def has(self) -> Needs:
        """What is held."""
        return Needs(frozenset(self.held), EMBEDDING in self._outer, self.norm is not None)

    def read(self, needs: Needs) -> Parts:
        """Read what is needed and not held. Changes nothing, so that it may run beside the computing.

        Raises:
            ModelError: tensors are missing from the folder.
        """
        missing = needs - self.has
        if not missing:
            return Parts()
        weights = self._tensors(missing)
        expected = {EMBEDDING} if missing.entry else set()
        expected |= {FINAL_NORM} if missing.ending else set()
        if absent := expected - weights.keys():
            raise ModelError("tensors are missing from the model folder", sorted(absent), "Import the model again.")
        outer = {name: tensor for name, tensor in weights.items() if not name.startswith("model.layers.")}
        return Parts({index: self._layer(index, weights) for index in sorted(missing.layers)}, outer)

    def take(self, parts: Parts) -> None:
        """Hold what was read."""
        # New mappings, since another thread may be looking at those of before.
        self.held = {**self.held, **parts.layers}
        self._outer = {**self._outer, **parts.outer}
        if self.norm is None and FINAL_NORM in self._outer:
            self.norm = self._norm(self._outer[FINAL_NORM])

    def keep_only(self, needs: Needs) -> None:
        """Let go of everything else."""
        self.held = {index: layer for index, layer in self.held.items() if index in needs.layers}
        if not needs.ending:
            self.norm = None
        names = {EMBEDDING} if needs.entry or (needs.ending and self._tied) else set()
        names |= {FINAL_NORM, TIED_HEAD} if needs.ending else set()
        self._outer = {name: tensor for name, tensor in self._outer.items() if name in names}

    @property
    def _tied(self) -> bool:
        return bool(self.config.tie_word_embeddings)

    def _tensors(self, missing: Needs) -> dict[str, torch.Tensor]:
        def wanted(name: str) -> bool:
            if name.startswith("model.layers."):
                return int(name.split(".")[2]) in missing.layers
            if name == EMBEDDING:
                return name not in self._outer and (missing.entry or (missing.ending and self._tied))
            return missing.ending and (name == FINAL_NORM or (name == TIED_HEAD and not self._tied))

        weights: dict[str, torch.Tensor] = {}
        for name, tensor in read_tensors(self._folder, wanted):
            rounded = tensor.to(device=self.device, dtype=self._file_dtype)
            weights[name] = rounded.float() if self._widen else rounded
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

    def _norm(self, weight: torch.Tensor) -> torch.nn.Module:
        with torch.device("meta"):
            norm = self.family.norm()
        norm.load_state_dict({"weight": weight}, assign=True)
        return norm.eval().requires_grad_(False)

    def new_cache(self, segment: Segment) -> AttentionCache:
        """An empty cache for the layers of a segment."""
        heads = self.config.num_key_value_heads
        head_size = getattr(self.config, "head_dim", None) or self.config.hidden_size // self.config.num_attention_heads
        return self.cache_type(segment, heads, head_size, self.dtype, self.device)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Rows that enter layer 0; `tokens` are int64 on the slice's device."""
        if EMBEDDING not in self._outer:
            raise ModelError("this slice has no embedding", None, "Send tokens to a node that hosts layer 0.")
        return self.family.embed(tokens, self._outer[EMBEDDING])

    def arguments(self, states: torch.Tensor, start: int) -> LayerArguments:
        """What the layers take besides (sequences, positions, hidden size) states, whose positions begin at `start`."""
        return LayerArguments(self.family, states, start, self.config._attn_implementation)

    def forward(self, segment: Segment, hidden: torch.Tensor, cache: AttentionCache) -> torch.Tensor:
        """Run (positions, hidden size) rows that follow what the cache holds through a segment; fills the cache."""
        start, count = cache.length, int(hidden.shape[0])
        states = hidden.unsqueeze(0)
        arguments = self.arguments(states, start)
        for index in range(segment.first, segment.end):
            layer = self.held[index]
            layer.self_attn.layer_idx = index - segment.first
            states = layer(states, past_key_values=cache, use_cache=True, **arguments.of(index))
        cache.length = start + count
        if segment.end == self.total_layers and self.norm is not None:
            states = self.norm(states)
        return states[0]

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """Head over post-norm rows in the slice's dtype, then float32."""
        head = self._outer.get(TIED_HEAD, self._outer.get(EMBEDDING))
        if head is None or self.norm is None:
            raise ModelError("this slice has no head", None, "Ask a node that hosts the last layer.")
        return self.family.logits(rows, head)
