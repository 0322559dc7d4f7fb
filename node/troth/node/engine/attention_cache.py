"""Keys and values of one session, in tensors that are allocated ahead and written in place."""

from __future__ import annotations

from typing import Any

import torch

from troth.protocol.types import Segment

BLOCK = 64


class AttentionCache:
    """The cache object that Hugging Face attention modules call `update` on.

    Shapes: keys and values are (1, key-value heads, capacity, head size) per layer; `length` positions are filled.
    `segment` are the layers that it is for.
    """

    def __init__(self, segment: Segment, heads: int, head_size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.segment = segment
        self._shape = (2, segment.end - segment.first, 1, heads, 0, head_size)
        self._store = torch.empty(self._shape, dtype=dtype, device=device)
        self.length = 0

    @property
    def capacity(self) -> int:
        """Positions that fit without another allocation."""
        return int(self._store.shape[4])

    @property
    def bytes(self) -> int:
        """Memory held."""
        return self.bytes_for(self.capacity)

    def bytes_for(self, capacity: int) -> int:
        """Memory that a capacity takes."""
        kinds, layers, batch, heads, _, head_size = self._shape
        return int(kinds * layers * batch * heads * capacity * head_size * self._store.element_size())

    def capacity_for(self, positions: int) -> int:
        """Capacity to allocate for so many positions: by half more than before, in whole blocks."""
        if positions <= self.capacity:
            return self.capacity
        return -(-max(positions, self.capacity * 3 // 2) // BLOCK) * BLOCK

    def grow(self, capacity: int) -> None:
        """Move to a larger allocation, keeping what is filled."""
        if capacity <= self.capacity:
            return
        larger = self._store.new_empty((*self._shape[:4], capacity, self._shape[5]))
        larger[..., : self.length, :] = self._store[..., : self.length, :]
        self._store = larger

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *unused: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a layer's new keys and values after the filled positions; returns all of that layer's so far."""
        end = self.length + keys.shape[2]
        self._store[0, layer, :, :, self.length : end] = keys
        self._store[1, layer, :, :, self.length : end] = values
        return self._store[0, layer, :, :, :end], self._store[1, layer, :, :, :end]
