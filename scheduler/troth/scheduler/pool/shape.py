"""A model's sizes, from the configuration that its descriptor hashes: nobody's word is needed for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from troth.protocol.dtype import Dtype
from troth.scheduler.placement.hardware import ModelShape

_WORD_BYTES = {Dtype.FLOAT32: 4, Dtype.BFLOAT16: 2}
_LARGEST = 1 << 24
"""Above every width, vocabulary and count of experts there is; what is larger counts as none."""


def shape_of(config: str, layers: int, dtype: int) -> ModelShape:
    """Bytes of a decoder-only transformer with gated layers, dense or with experts, grouped-query attention.

    What the configuration does not name counts nothing: then a machine's memory does not bound its slice, and its own
    check has to.
    """
    named = _object(config)
    word = _WORD_BYTES[Dtype(dtype)]
    hidden, heads = _size(named, "hidden_size"), _size(named, "num_attention_heads")
    head = _size(named, "head_dim") or (hidden // heads if heads else 0)
    keys = (_size(named, "num_key_value_heads") or heads) * head
    attention = hidden * (heads * head + 2 * keys) + heads * head * hidden
    embedding = _size(named, "vocab_size") * hidden * word
    return ModelShape(
        layers=layers,
        layer_bytes=(attention + _feed_forward(named, hidden) + 4 * hidden) * word,
        key_value_bytes=2 * keys * word,
        embedding_bytes=embedding,
        head_bytes=embedding,
        tied=bool(named.get("tie_word_embeddings")),
    )


def _feed_forward(named: Mapping[str, Any], hidden: int) -> int:
    experts = _size(named, "num_local_experts") or _size(named, "num_experts")
    width = _size(named, "moe_intermediate_size") if experts else 0
    return 3 * hidden * (width or _size(named, "intermediate_size")) * max(1, experts) + experts * hidden


def _object(config: str) -> Mapping[str, Any]:
    whole = json.loads(config)
    if not isinstance(whole, dict):
        return {}
    text = whole.get("text_config")
    return text if isinstance(text, dict) else whole


def _size(named: Mapping[str, Any], key: str) -> int:
    value = named.get(key)
    return value if isinstance(value, int) and 0 < value <= _LARGEST else 0
