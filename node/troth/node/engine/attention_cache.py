"""Keys and values of one session, written in place."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from troth.protocol.types import Segment

BLOCK = 64
"""Positions by which memory is counted."""
RESERVES = hasattr(mmap, "MAP_ANONYMOUS")
"""Whether the system gives memory to addresses only when they are written."""
RESERVED_BYTES = 2 << 30
"""Of addresses for one cache at most; a longer text moves. Systems refuse what is far beyond their memory."""
NO_HUGE_PAGES: int | None = getattr(mmap, "MADV_NOHUGEPAGE", None)


class CacheShape(NamedTuple):
    """What one layer keeps of a position: heads and size of keys, and of values."""

    key_heads: int
    key_size: int
    value_heads: int
    value_size: int

    @property
    def elements(self) -> int:
        """Numbers a position."""
        return self.key_heads * self.key_size + self.value_heads * self.value_size


def reserved_memory(size: int) -> torch.Tensor | None:
    """So many bytes of addresses, to which memory is given as it is written; None where the system does not do that."""
    if not RESERVES or not size:
        return None
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError):
        # A system that is told to promise no more memory than it has.
        return None
    if NO_HUGE_PAGES is not None:
        # Pages of 2 MB would be held for the sake of one position.
        memory.madvise(NO_HUGE_PAGES)
    return torch.frombuffer(memory, dtype=torch.uint8)


class AttentionCache:
    """Keys and values are (1, heads, capacity, head size) per layer; `length` positions are filled.

    On a CPU a cache reserves addresses for the longest text, `most` positions, and the operating system gives memory
    page by page as they are written: nothing is ever moved, and no page is held for what may come. Elsewhere a cache
    that is full moves into a larger one.

    `segment` are the layers that it is for; `shapes` are theirs, in order.
    """

    def __init__(
        self,
        segment: Segment,
        shapes: Sequence[CacheShape],
        dtype: torch.dtype,
        device: torch.device,
        most: int = BLOCK,
    ) -> None:
        self.segment = segment
        self._shapes, self._dtype, self._device = tuple(shapes), dtype, device
        self._position_bytes: int = sum(shape.elements for shape in shapes) * int(dtype.itemsize)
        most = min(most, RESERVED_BYTES // max(1, self._position_bytes))
        self._most = -(-most // BLOCK) * BLOCK
        self._reserved = 0
        self._store: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.capacity = 0
        self.length = 0

    @property
    def bytes(self) -> int:
        """Memory held."""
        return self.bytes_for(self.capacity)

    def bytes_for(self, capacity: int) -> int:
        """Memory that a capacity takes."""
        return self._position_bytes * capacity

    def capacity_for(self, positions: int) -> int:
        """Capacity to have for so many positions, in whole blocks; by half more than before where growing is moving."""
        if positions <= self.capacity:
            return self.capacity
        if positions > self._reserved > 0:
            positions = max(positions, self.capacity * 3 // 2)
        return -(-positions // BLOCK) * BLOCK

    def grow(self, positions: int) -> None:
        """Have room for so many positions, in whole blocks, keeping what is filled."""
        capacity = self.capacity_for(positions)
        if capacity > self._reserved:
            self._move(capacity)
        self.capacity = max(self.capacity, capacity)

    def _move(self, capacity: int) -> None:
        before = self._store
        self._reserved, self._store = self._room(capacity)
        for old, new in zip(before, self._store, strict=False):
            for kept, larger in zip(old, new, strict=True):
                larger[:, :, : self.length] = kept[:, :, : self.length]

    def _room(self, capacity: int) -> tuple[int, list[tuple[torch.Tensor, torch.Tensor]]]:
        """Keys and values for at least so many positions, and for how many."""
        if self._device.type == "cpu":
            wanted = max(capacity, self._most)
            memory = reserved_memory(self._position_bytes * wanted)
            if memory is not None:
                return wanted, self._cut(memory.view(self._dtype), wanted)
        elements = self._position_bytes * capacity // int(self._dtype.itemsize)
        return capacity, self._cut(torch.empty(elements, dtype=self._dtype, device=self._device), capacity)

    def _cut(self, memory: torch.Tensor, capacity: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        sizes = [
            (heads, capacity, size)
            for shape in self._shapes
            for heads, size in ((shape.key_heads, shape.key_size), (shape.value_heads, shape.value_size))
        ]
        parts = memory.split([heads * positions * size for heads, positions, size in sizes])
        states = [part.view(1, *size) for part, size in zip(parts, sizes, strict=True)]
        return list(zip(states[::2], states[1::2], strict=True))

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *unused: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values of a layer, counted from the model's first, after the filled positions.

        Returns all of that layer's so far.
        """
        self.write(keys, values, layer)
        return self.until(self.length + keys.shape[2], layer)

    def write(self, keys: torch.Tensor, values: torch.Tensor, layer: int) -> None:
        """Put new keys and values of a layer after the filled positions."""
        end = self.length + keys.shape[2]
        kept_keys, kept_values = self._store[layer - self.segment.first]
        kept_keys[:, :, self.length : end] = keys
        kept_values[:, :, self.length : end] = values

    def until(self, end: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a layer up to a position within the capacity."""
        kept_keys, kept_values = self._store[layer - self.segment.first]
        return kept_keys[:, :, :end], kept_values[:, :, :end]
