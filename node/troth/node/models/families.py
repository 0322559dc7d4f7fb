"""The model families that Troth computes: `model_type` of config.json, and what transformers calls the whole model.

How a family is computed is `troth.node.engine.families`; this list is apart from it, so that reading a model folder
needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from troth.node.errors import ModelError

CAUSAL_CLASSES = {"gemma3_text": "Gemma3ForCausalLM", "llama": "LlamaForCausalLM"}


def require_family(config: Mapping[str, Any]) -> str:
    """The `model_type` of a configuration.

    Raises:
        ModelError: it is none that Troth computes.
    """
    family = config.get("model_type")
    if not isinstance(family, str) or family not in CAUSAL_CLASSES:
        known = " or ".join(sorted(CAUSAL_CLASSES))
        raise ModelError("this model family is not supported", family, f"Use a model whose model_type is {known}.")
    return family
