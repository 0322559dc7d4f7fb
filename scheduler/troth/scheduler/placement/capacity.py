"""How many layers a machine can hold, in each place of a pipeline."""

from __future__ import annotations

from typing import NamedTuple

from troth.scheduler.placement.hardware import ModelShape


class Capacity(NamedTuple):
    """Layers beside nothing, beside the embedding, beside the head, and beside both; each at most the model's.

    All four are kept because rounding makes them independent: a charge of 0.4 layers costs one machine a layer and
    another none, so a pipeline whose stages are reordered must look again.
    """

    inner: int
    first: int
    last: int
    whole: int

    def of_slice(self, first: int, end: int, layers: int) -> int:
        """The layers that fit if the slice is `[first, end)` of a model of `layers`."""
        if first <= 0:
            return self.whole if end >= layers else self.first
        return self.last if end >= layers else self.inner


NOTHING = Capacity(0, 0, 0, 0)


def capacity_of(memory_bytes: int, shape: ModelShape, cached_tokens: int) -> Capacity:
    """Count layers with their cache; 0 where the charge leaves no room. Negative sizes count as 0 bytes."""
    if shape.layers < 1:
        return NOTHING
    per_layer = max(0, shape.layer_bytes) + max(0, cached_tokens) * max(0, shape.key_value_bytes)
    embedding, head = max(0, shape.embedding_bytes), max(0, shape.head_bytes)
    both = max(embedding, head) if shape.tied else embedding + head

    def beside(charge: int) -> int:
        room = memory_bytes - charge
        if room < 0:
            return 0
        return min(shape.layers, room // per_layer) if per_layer else shape.layers

    return Capacity(beside(0), beside(embedding), beside(head), beside(both))
