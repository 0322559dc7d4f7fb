"""Layers of a model, which the model's own code runs; `decoder` knows how.

Only the tensors of the layers that are held are read: the embedding where a segment starts at layer 0, the final norm
and the head where one ends at the last layer. Weights in the file's own dtype stay mapped from disk, so that processes
on one machine share them, but for those that an exact slice lays out anew; quantised ones are made whole in the class'
dtype, layer by layer.

What of a model some segments need: which layers, and what lies before the first and after the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from troth.node.engine.attention_cache import AttentionCache
from troth.node.engine.card import multiply_in_full
from troth.node.engine.decoder import Decoder
from troth.node.engine.packing import Continuation, past_of
from troth.node.errors import ModelError
from troth.node.models.checkpoint import Checkpoint
from troth.node.models.dequantised import FolderWeights
from troth.node.models.folder import ModelFolder
from troth.node.models.weights import read_tensors
from troth.protocol.types import Segment

LONGEST_TEXT = 1 << 17
"""Positions for which a session's cache reserves addresses at most; longer ones are moved."""


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


@dataclass(frozen=True, slots=True)
class Parts:
    """What was read: decoder layers by their index, weights of entry and ending by their name, and which of both."""

    layers: Mapping[int, torch.nn.Module] = field(default_factory=dict)
    outer: Mapping[str, torch.Tensor] = field(default_factory=dict)
    needs: Needs = field(default_factory=Needs)


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
            ModelError: the slice does not fit the model, tensors are missing from the folder, or it does not slice.
        """
        multiply_in_full()
        self.decoder = Decoder(folder, dtype, device)
        self.config = self.decoder.config
        self.device = device
        self.total_layers = self.decoder.total
        self.dtype = torch.float32 if widen else dtype
        self._folder = folder
        self._file_dtype = dtype
        self._widen = widen
        self._stored = FolderWeights.of(folder)
        self._checkpoint = Checkpoint(self._stored.shapes, self.decoder.model, self.decoder.rooms)
        self.held: dict[int, torch.nn.Module] = {}
        self._outer: dict[str, torch.Tensor] = {}
        self._has = Needs()
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
        return Needs(frozenset(self.held), self._has.entry, self._has.ending)

    def read(self, needs: Needs) -> Parts:
        """Read what is needed and not held. Changes nothing, so that it may run beside the computing.

        Raises:
            ModelError: tensors are missing from the folder, or have the wrong shape.
        """
        missing = needs - self.has
        if not missing:
            return Parts()
        outer_names = self._outer_names(missing)
        weights = self._tensors(missing, outer_names - self._outer.keys())
        if absent := outer_names - self._outer.keys() - weights.keys():
            raise ModelError("tensors are missing from the model folder", sorted(absent), "Import the model again.")
        outer = {name: weights.pop(name) for name in outer_names if name in weights}
        layers: dict[int, dict[str, torch.Tensor]] = {index: {} for index in sorted(missing.layers)}
        for name, value in weights.items():
            index, _, own = name.removeprefix(self.decoder.prefix).partition(".")
            layers[int(index)][own] = value
        return Parts({index: self._layer(index, own) for index, own in layers.items()}, outer, missing)

    def take(self, parts: Parts) -> None:
        """Hold what was read."""
        # New mappings, since another thread may be looking at those of before.
        self.held = {**self.held, **parts.layers}
        self._outer = {**self._outer, **parts.outer}
        self._has |= parts.needs
        self._assign(parts.outer)

    def keep_only(self, needs: Needs) -> None:
        """Let go of everything else."""
        self.held = {index: layer for index, layer in self.held.items() if index in needs.layers}
        self._has -= self._has - needs
        kept = self._outer_names(needs)
        gone = self._outer.keys() - kept
        self._outer = {name: tensor for name, tensor in self._outer.items() if name in kept}
        self._assign(dict.fromkeys(gone))

    def _assign(self, outer: Mapping[str, torch.Tensor | None]) -> None:
        for name, value in outer.items():
            self.decoder.assign(name, value)
            for other, same in self.decoder.tied.items():
                if same == name:
                    self.decoder.assign(other, value)

    def _outer_names(self, needs: Needs) -> frozenset[str]:
        names = self.decoder.entry if needs.entry else frozenset[str]()
        if needs.ending:
            tied = {same for same in self.decoder.tied.values() if not same.startswith(self.decoder.prefix)}
            names = names | self.decoder.ending | tied
        return names

    def _tensors(self, missing: Needs, outer: frozenset[str]) -> dict[str, torch.Tensor]:
        def wanted(name: str) -> bool:
            if name.startswith(self.decoder.prefix):
                return int(name.removeprefix(self.decoder.prefix).split(".")[0]) in missing.layers
            return name in outer

        names = self._stored.tensors(self._checkpoint.sources(wanted))
        read = dict(read_tensors(self._folder, names.__contains__))
        weights = self._checkpoint.made(dict(self._stored.whole(read, self._file_dtype, self.device)))
        return {name: self._rounded(name, tensor) for name, tensor in weights.items()}

    def _rounded(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        dtype = torch.float32 if self.decoder.stays_wide(name) else self._file_dtype
        rounded = tensor.to(device=self.device, dtype=dtype)
        return rounded.float() if self._widen else rounded

    def _layer(self, index: int, weights: Mapping[str, torch.Tensor]) -> torch.nn.Module:
        return self.decoder.layer(index, weights)

    @property
    def packs(self) -> bool:
        """Whether several sequences can go through it in one pass."""
        return self.decoder.packs

    def new_cache(self, segment: Segment) -> AttentionCache:
        """An empty cache for the layers of a segment."""
        shapes = self.decoder.shapes[segment.first : segment.end]
        most = min(int(getattr(self.config, "max_position_embeddings", None) or LONGEST_TEXT), LONGEST_TEXT)
        return self.cache_type(segment, shapes, self.dtype, self.device, most)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Rows that enter layer 0; `tokens` are int64 on the slice's device."""
        if not self._has.entry:
            raise ModelError("this slice has no embedding", None, "Send tokens to a node that hosts layer 0.")
        return self.decoder.embed(tokens)

    def forward(self, segment: Segment, hidden: torch.Tensor, pieces: Sequence[Continuation]) -> torch.Tensor:
        """Run (positions, hidden size) rows of some sequences, one after the other, through a segment.

        Each sequence's rows follow what its cache holds; the caches are filled. Where the family cannot be packed, only
        one sequence may be given.
        """
        past = past_of(pieces, joined=self.decoder.joins)
        states = self.decoder.run(segment, hidden.unsqueeze(0), self.held, past)
        for cache, count in pieces:
            cache.length += count
        return states[0]

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """Head over post-norm rows, (positions, hidden size) or with sequences before, then float32."""
        if not self._has.ending:
            raise ModelError("this slice has no head", None, "Ask a node that hosts the last layer.")
        return self.decoder.logits(rows) if rows.ndim > 2 else self.decoder.logits(rows.unsqueeze(0))[0]
