"""Several sequences in one pass of a model that knows of one: their new positions stand one after the other in a row.

Whatever a layer does to a position alone (products, norms, rotary embeddings by the position's own number) is done for
all of them at once, so that weights are read once. Only attention looks at other positions. So masks are made for each
sequence, keys and values go to the cache of each, and attention is called for each, as if it were alone: with its own
shapes, so that in an exact class it has its own bits whatever else is in the pass.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
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
PACKED = {"sdpa": "troth_packed_sdpa", "eager": "troth_packed_eager"}
"""Attention as transformers names it, and the same for several sequences."""


class Continuation(NamedTuple):
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
        """While the model runs, in this thread, attention and masks are told to it."""
        token = _AT_WORK.set(self)
        try:
            yield
        finally:
            _AT_WORK.reset(token)

    def attend(self, attention: Attention, module: torch.nn.Module, *given: Any, **named: Any) -> tuple[Any, Any]:
        """What attention gives: of one sequence, what it gives by itself."""
        return attention(module, *given, **named)

    def mask(self, made: Callable[..., Any], named: Mapping[str, Any]) -> Any:
        """The mask that attention is given."""
        return made(**named)


_AT_WORK: ContextVar[Past | None] = ContextVar("at_work", default=None)


class PackedPast(Past):
    """The caches of several sequences.

    Args:
        joined: give layers the keys and values of all sequences, since they make others of them. Elsewhere what they
            are given means nothing, and attention takes each sequence's own, which needs no copy.
    """

    def __init__(self, pieces: Sequence[Continuation], *, joined: bool) -> None:
        super().__init__(0, self._put)
        ends = list(accumulate(piece.positions for piece in pieces))
        self._spans = [slice(end - piece.positions, end) for piece, end in zip(pieces, ends, strict=True)]
        self._starts = [piece.cache.length for piece in pieces]
        self._caches = [piece.cache for piece in pieces]
        self._joined = joined
        self._kept: list[KeptPair] = []

    def _put(self, keys: torch.Tensor, values: torch.Tensor, layer: int) -> KeptPair:
        self._kept = [
            cache.update(keys[:, :, span], values[:, :, span], layer)
            for cache, span in zip(self._caches, self._spans, strict=True)
        ]
        if not self._joined:
            return keys, values
        return torch.cat([kept for kept, _ in self._kept], dim=2), torch.cat([kept for _, kept in self._kept], dim=2)

    def positions(self, count: int, device: torch.device) -> torch.Tensor:
        """Each sequence counts its own."""
        pairs = zip(self._starts, self._spans, strict=True)
        return torch.cat([torch.arange(start, start + span.stop - span.start, device=device) for start, span in pairs])

    def attend(self, attention: Attention, module: torch.nn.Module, *given: Any, **named: Any) -> tuple[Any, Any]:
        """Attention of each sequence, one after the other."""
        query, key, value, masks = given
        kept = self._kept
        if self._joined:
            lengths = [keys.shape[2] for keys, _ in kept]
            kept = list(zip(key.split(lengths, dim=2), value.split(lengths, dim=2), strict=True))
        made = [
            attention(module, query[:, :, span], *own, mask, **named)[0]
            for span, own, mask in zip(self._spans, kept, masks, strict=True)
        ]
        return torch.cat(made, dim=1), None

    def mask(self, made: Callable[..., Any], named: Mapping[str, Any]) -> Any:
        """The masks of all sequences."""
        spans = zip(self._starts, (span.stop - span.start for span in self._spans), strict=True)
        return tuple(
            made(**{**named, "q_length": count, "kv_length": start + count, "q_offset": start})
            for start, count in spans
        )


class WatchedPast(Past):
    """A cache without memory that sees what the model's code does with it in one pass without weights."""

    def __init__(self, update: Callable[[torch.Tensor, torch.Tensor, int], KeptPair]) -> None:
        super().__init__(0, self._noted)
        self._keep = update
        self._given: KeptPair | None = None
        self.in_layers = False
        self.counted = False
        """Layers ask how many positions there are, which several sequences do not agree in."""
        self.made_others = False
        """Attention is given other keys and values than the cache gave."""

    def _noted(self, keys: torch.Tensor, values: torch.Tensor, layer: int) -> KeptPair:
        self._given = self._keep(keys, values, layer)
        return self._given

    def get_seq_length(self, *given: Any) -> int:
        """See `Past.get_seq_length`."""
        self.counted |= self.in_layers
        return super().get_seq_length(*given)

    get_query_offset = get_seq_length

    def attend(self, attention: Attention, module: torch.nn.Module, *given: Any, **named: Any) -> tuple[Any, Any]:
        """Compares keys and values with those of the cache."""
        _, keys, values, _ = given
        self.made_others |= self._given is None or keys is not self._given[0] or values is not self._given[1]
        return super().attend(attention, module, *given, **named)


def past_of(pieces: Sequence[Continuation], *, joined: bool) -> Past:
    """What a pass over these sequences is given; one alone needs nothing of what packing does."""
    if len(pieces) > 1:
        return PackedPast(pieces, joined=joined)
    cache = pieces[0].cache
    return Past(cache.length, cache.update)


def register_packed(name: str, attention: Attention, mask: Callable[..., Any]) -> None:
    """Make attention known to transformers by a name; both functions are called for one sequence at a time."""

    def attend(module: torch.nn.Module, *given: Any, **named: Any) -> tuple[Any, Any]:
        past = _AT_WORK.get()
        return attention(module, *given, **named) if past is None else past.attend(attention, module, *given, **named)

    def masked(**named: Any) -> Any:
        past = _AT_WORK.get()
        return mask(**named) if past is None else past.mask(mask, named)

    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, masked)


def _family_attention(module: torch.nn.Module, *given: Any, **named: Any) -> tuple[torch.Tensor, Any]:
    """Attention in plain operations, which each family writes down beside its layers: caps and sinks are in it."""
    attend: Attention = sys.modules[type(module).__module__].eager_attention_forward
    return attend(module, *given, **named)


register_packed(PACKED["sdpa"], sdpa_attention_forward, sdpa_mask)
register_packed(PACKED["eager"], _family_attention, eager_mask)
