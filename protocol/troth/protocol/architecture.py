"""The architecture string of a model descriptor: it ties configuration and tokenizer to the model id.

    "llama/" ‖ 0x keccak256(canonical configuration) ‖ "/" ‖ 0x keccak256(tokenizer.json ‖ chat template) ‖ "/weights-2"

A template that begins with white space is bound by keccak256(keccak256(tokenizer.json) ‖ keccak256(chat template)) in
place of the last hash: white space may also end a tokenizer.json, and moving it from one to the other would be another
prompt of the same model. The last part says by which rules the weights root is made (`node.weights_root`); without it,
by those of version 1.

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


JSON_SPACE = b" \t\n\r"
"""What may follow the end of a JSON text."""
MARK = "/weights-"
WEIGHTS_VERSION = 2


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
    return canonical_json(kept)


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def weights_version(architecture: str) -> int:
    """By which rules the weights root of a descriptor is made; 0 where they are of a later Troth."""
    _, mark, version = architecture.partition(MARK)
    return 1 if not mark else WEIGHTS_VERSION if version == str(WEIGHTS_VERSION) else 0


def without_version(architecture: str) -> str:
    """What a client looks at: family, configuration, tokenizer and template."""
    return architecture.partition(MARK)[0]


def with_version(architecture: str, version: int = WEIGHTS_VERSION) -> str:
    """The field of a descriptor whose weights root is of a version."""
    return architecture if version == 1 else f"{architecture}{MARK}{version}"


def language_hash(tokenizer_json: bytes, chat_template: bytes) -> bytes:
    """What an architecture binds of tokenizer and template; nothing else has the same hash."""
    if chat_template[:1].strip(JSON_SPACE):
        return keccak256(tokenizer_json + chat_template)
    if not chat_template:
        return keccak256(tokenizer_json)
    return keccak256(keccak256(tokenizer_json) + keccak256(chat_template))


def architecture_name(config: Mapping[str, Any], tokenizer_json: bytes, chat_template: str) -> str:
    """The `architecture` field for a model with this config.json, tokenizer.json and chat template, without version."""
    family = str(config.get("model_type", "unknown"))
    config_hash = keccak256(canonical_config(config)).hex()
    tokenizer_hash = language_hash(tokenizer_json, chat_template.encode()).hex()
    return f"{family}/0x{config_hash}/0x{tokenizer_hash}"
