"""Keys and values of one session, in tensors that are allocated ahead and written in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from troth.protocol.types import Segment

BLOCK = 64


class LayerShape(NamedTuple):
    """What one layer keeps of a position: heads and size of keys, and of values."""

    key_heads: int
    key_size: int
    value_heads: int
    value_size: int

    @property
    def elements(self) -> int:
        """Numbers a position."""
        return self.key_heads * self.key_size + self.value_heads * self.value_size


class AttentionCache:
    """Keys and values are (1, heads, capacity, head size) per layer; `length` positions are filled.

    `segment` are the layers that it is for; `shapes` are theirs, in order.
    """

    def __init__(
        self, segment: Segment, shapes: Sequence[LayerShape], dtype: torch.dtype, device: torch.device
    ) -> None:
        self.segment = segment
        self._position_bytes: int = sum(shape.elements for shape in shapes) * int(dtype.itemsize)
        self._store = [
            tuple(
                torch.empty((1, heads, 0, size), dtype=dtype, device=device)
                for heads, size in ((shape.key_heads, shape.key_size), (shape.value_heads, shape.value_size))
            )
            for shape in shapes
        ]
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
        """Capacity to allocate for so many positions: by half more than before, in whole blocks."""
        if positions <= self.capacity:
            return self.capacity
        return -(-max(positions, self.capacity * 3 // 2) // BLOCK) * BLOCK

    def grow(self, capacity: int) -> None:
        """Move to a larger allocation, keeping what is filled."""
        if capacity <= self.capacity:
            return
        self._store = [tuple(self._moved(kept, capacity) for kept in layer) for layer in self._store]
        self.capacity = capacity

    def _moved(self, kept: torch.Tensor, capacity: int) -> torch.Tensor:
        larger = kept.new_empty((1, kept.shape[1], capacity, kept.shape[3]))
        larger[:, :, : self.length] = kept[:, :, : self.length]
        return larger

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
