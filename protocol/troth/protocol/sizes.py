"""A model's sizes in memory, from the configuration that its descriptor hashes: nobody's word is needed for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from troth.protocol.tensors import Dtype
from troth.protocol.types import Segment

_LARGEST = 1 << 24
"""Above every width, vocabulary and count of experts there is; what is larger counts as none."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Bytes. `key_value` is the cache of one position in one layer; embedding and head are one tensor if `tied`."""

    layer: int
    key_value: int
    embedding: int
    head: int
    tied: bool

    def of_slice(self, hosted: Segment, layers: int) -> int:
        """Weights of a slice of a model of `layers`, with what lies before the first and after the last layer."""
        at_start = self.embedding if hosted.first == 0 else 0
        at_end = self.head if hosted.end == layers else 0
        ends = max(at_start, at_end) if self.tied else at_start + at_end
        return (hosted.end - hosted.first) * self.layer + ends


def sizes_of(config: Mapping[str, Any], dtype: int) -> ModelSizes:
    """Sizes of a decoder-only transformer with gated layers, dense or with experts, and grouped-query attention.

    What the configuration does not name counts nothing.
    """
    text = config.get("text_config")
    named = text if isinstance(text, Mapping) else config
    word = 4 if Dtype(dtype) is Dtype.FLOAT32 else 2
    hidden, heads = _size(named, "hidden_size"), _size(named, "num_attention_heads")
    head = _size(named, "head_dim") or (hidden // heads if heads else 0)
    keys = (_size(named, "num_key_value_heads") or heads) * head
    attention = hidden * (heads * head + 2 * keys) + heads * head * hidden
    embedding = _size(named, "vocab_size") * hidden * word
    return ModelSizes(
        layer=(attention + _feed_forward(named, hidden) + 4 * hidden) * word,
        key_value=2 * keys * word,
        embedding=embedding,
        head=embedding,
        tied=bool(named.get("tie_word_embeddings")),
    )


def _feed_forward(named: Mapping[str, Any], hidden: int) -> int:
    experts = _size(named, "num_local_experts") or _size(named, "num_experts")
    width = _size(named, "moe_intermediate_size") if experts else 0
    return 3 * hidden * (width or _size(named, "intermediate_size")) * max(1, experts) + experts * hidden


def _size(named: Mapping[str, Any], key: str) -> int:
    value = named.get(key)
    return value if isinstance(value, int) and 0 < value <= _LARGEST else 0
