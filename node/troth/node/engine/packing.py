"""Several sequences in one pass of a model that knows of one: their new positions stand one after the other in a row.

Whatever a layer does to a position alone (products, norms, rotary embeddings by the position's own number) is done for
all of them at once, so that weights are read once. Only attention looks at other positions. So masks are made for each
sequence, keys and values go to the cache of each, and attention is called for each, as if it were alone: with its own
shapes, so that in an exact class it has its own bits whatever else is in the pass.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask

from troth.node.engine.attention_cache import AttentionCache

Attention = Callable[..., tuple[torch.Tensor, Any]]
KeptPair = tuple[torch.Tensor, torch.Tensor]


class Piece(NamedTuple):
    """The new positions of one sequence: so many after those that its cache holds."""

    cache: AttentionCache
    positions: int


class Past:
    """A cache as transformers' code looks at it: `start` positions are in it, and layers update their own."""

    is_compileable = False

    def __init__(self, start: int, update: Callable[[torch.Tensor, torch.Tensor, int], KeptPair]) -> None:
        self._start = start
        self._update = update

    def get_seq_length(self, *_: Any) -> int:
        """Positions in the cache."""
        return self._start

    get_query_offset = get_seq_length

    def get_mask_sizes(self, queries: Any, *_: Any) -> tuple[int, int]:
        """Number of keys after this pass, and the position of the first one."""
        count = int(queries.shape[0]) if isinstance(queries, torch.Tensor) else int(queries)
        return self._start + count, 0

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any) -> KeptPair:
        """Add a layer's keys and values; returns all that it has."""
        return self._update(keys, values, layer)

    def positions(self, count: int, device: torch.device) -> torch.Tensor:
        """The numbers of the new positions."""
        return torch.arange(self._start, self._start + count, device=device)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While the model runs."""
        yield


class PackedPast(Past):
    """The caches of several sequences. What a layer is given back of them means nothing: its attention is told more."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(0, self._put)
        ends = list(accumulate(piece.positions for piece in pieces))
        self.spans = [slice(end - piece.positions, end) for piece, end in zip(pieces, ends, strict=True)]
        self.starts = [piece.cache.length for piece in pieces]
        self.kept: list[KeptPair] = []
        self._caches = [piece.cache for piece in pieces]

    def _put(self, keys: torch.Tensor, values: torch.Tensor, layer: int) -> KeptPair:
        self.kept = [
            cache.update(keys[:, :, span], values[:, :, span], layer)
            for cache, span in zip(self._caches, self.spans, strict=True)
        ]
        return keys, values

    def positions(self, count: int, device: torch.device) -> torch.Tensor:
        """Each sequence counts its own."""
        pairs = zip(self.starts, self.spans, strict=True)
        return torch.cat([torch.arange(start, start + span.stop - span.start, device=device) for start, span in pairs])

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """In this thread, masks and attention are those of the sequences."""
        token = _PACKED.set(self)
        try:
            yield
        finally:
            _PACKED.reset(token)


_PACKED: ContextVar[PackedPast | None] = ContextVar("packed", default=None)


def past_of(pieces: Sequence[Piece]) -> Past:
    """What a pass over these sequences is given; one alone needs nothing of what packing does."""
    if len(pieces) > 1:
        return PackedPast(pieces)
    cache = pieces[0].cache
    return Past(cache.length, cache.update)


def register_packed(name: str, attend: Attention, mask: Callable[..., Any]) -> None:
    """Make attention known to transformers by a name; both functions are called for one sequence at a time."""

    def attend_each(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        **named: Any,
    ) -> tuple[torch.Tensor, Any]:
        packed = _PACKED.get()
        if packed is None:
            return attend(module, query, key, value, attention_mask, **named)
        made = [
            attend(module, query[:, :, span], *kept, own_mask, **named)[0]
            for span, kept, own_mask in zip(packed.spans, packed.kept, attention_mask, strict=True)
        ]
        return torch.cat(made, dim=1), None

    def mask_each(**named: Any) -> Any:
        packed = _PACKED.get()
        if packed is None:
            return mask(**named)
        spans = zip(packed.starts, (span.stop - span.start for span in packed.spans), strict=True)
        return tuple(
            mask(**{**named, "q_length": count, "kv_length": start + count, "q_offset": start})
            for start, count in spans
        )

    AttentionInterface.register(name, attend_each)
    AttentionMaskInterface.register(name, mask_each)


def _family_attention(module: torch.nn.Module, *given: Any, **named: Any) -> tuple[torch.Tensor, Any]:
    """Attention in plain operations, which each family writes down beside its layers: caps and sinks are in it."""
    attend: Attention = sys.modules[type(module).__module__].eager_attention_forward
    return attend(module, *given, **named)


PACKED = {"sdpa": "troth_packed_sdpa", "eager": "troth_packed_eager"}
"""Attention as transformers names it, and the same for several sequences."""
register_packed(PACKED["sdpa"], sdpa_attention_forward, sdpa_mask)
register_packed(PACKED["eager"], _family_attention, eager_mask)
