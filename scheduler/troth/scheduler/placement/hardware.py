"""What phase 1 is told: the shape of a model, the machines, and the terms of a placement."""

from __future__ import annotations

from dataclasses import dataclass


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
