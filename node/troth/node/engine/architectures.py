"""The class that config.json names has to be its family's.

transformers builds a model by `model_type`, and vLLM by `architectures`. Where both contradict each other, honest nodes
of one class would compute two models, and those that are fewer would lose stake for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
)

from troth.node.errors import ModelError

WRITERS = (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
)
"""Names of the classes that write text, by their family."""


def require_one_architecture(config: Mapping[str, Any], family: str) -> None:
    """Raise ModelError where a configuration, or a part of one, names another class than those of its family that write
    text; where it names none, nobody can take it for another."""
    names = config.get("architectures")
    if names is None:
        return
    own = {_plain(one) for mapping in WRITERS if isinstance(one := mapping.get(family), str)}
    if not isinstance(names, list) or not names or not all(_plain(str(name)) in own for name in names):
        what = f"config.json names another architecture than that of its model_type, {family}"
        raise ModelError(what, names, "Restore config.json from the model's source, or use another model.")


def _plain(name: str) -> str:
    """Makers and transformers differ in where they put underscores."""
    return name.replace("_", "").lower()
