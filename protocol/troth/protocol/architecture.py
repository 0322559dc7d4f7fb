"""The architecture string of a model descriptor: it ties configuration and tokenizer to the model id.

    "llama/" ‖ 0x keccak256(canonical configuration) ‖ "/" ‖ 0x keccak256(tokenizer.json ‖ chat template)

A client fetches these three texts from whoever serves them and recomputes the string, so that a changed chat template
or tokenizer is a different model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from troth.protocol.hashing import keccak256

# Written by the software that saved the folder, without effect on the function the model computes; the dtype has its
# own field in the descriptor. Leaving one in would give the same weights a new id after every library release.
INCIDENTAL_KEYS = frozenset({"dtype", "quantization_config", "torch_dtype", "transformers_version"})


def text_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """The decoder's part of a configuration, with what it inherits: models of several kinds of input nest it."""
    nested = config.get("text_config")
    if not isinstance(nested, Mapping):
        return dict(config)
    inherited = {key: config[key] for key in ("tie_word_embeddings", "eos_token_id", "bos_token_id") if key in config}
    return {**inherited, **nested}


def canonical_config(config: Mapping[str, Any]) -> bytes:
    """The configuration as UTF-8 JSON: sorted keys, no spaces, incidental keys and those that start with _ left out."""
    kept = {key: value for key, value in config.items() if key not in INCIDENTAL_KEYS and not key.startswith("_")}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def architecture_name(config: Mapping[str, Any], tokenizer_json: bytes, chat_template: str) -> str:
    """The `architecture` field for a model with this config.json, tokenizer.json and chat template."""
    family = str(config.get("model_type", "unknown"))
    config_hash = keccak256(canonical_config(config)).hex()
    tokenizer_hash = keccak256(tokenizer_json + chat_template.encode()).hex()
    return f"{family}/0x{config_hash}/0x{tokenizer_hash}"
