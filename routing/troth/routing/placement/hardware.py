"""What phase 1 is told: a model, machines and terms; and how many layers each machine can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A transformer as memory sees it. All sizes in bytes.

    `key_value_bytes` is the cache of one token in one layer. The embedding lies with the first layer and the head with
    the last; a machine that hosts both pays once if they are `tied`.
    """

    layers: int
    layer_bytes: int
    key_value_bytes: int
    embedding_bytes: int
    head_bytes: int
    tied: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """One node: memory for weights and cache in bytes, and its measured seconds for one layer of one token."""

    name: str
    memory_bytes: int
    layer_seconds: float


@dataclass(frozen=True, slots=True)
class Terms:
    """What a placement has to give.

    `cached_tokens`: room for so many tokens is kept in every hosted layer. `verifiers`: machines that must be eligible
    for a segment besides its inferencer. `exponent`: alpha of Z(k); 2 is the published default. `crossing`: whether
    machines that no region can use may form pipelines across regions.
    """

    cached_tokens: int = 0
    verifiers: int = 0
    exponent: float = 2.0
    crossing: bool = True


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
