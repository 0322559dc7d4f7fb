"""What of config.json one engine goes by and another does not: it has to say the same, or nothing.

transformers builds a model by `model_type`, and vLLM by `architectures`. Some of vLLM's classes serve several families
and look for settings of all of them: a Llama with `logit_scale` has other logits there, and one with `layer_types` has
windows, of which transformers' Llama knows nothing. So honest nodes of one class would compute two models, and those
that are fewer would lose stake for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig
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
FULL = "full_attention"
ELSEWHERE: Mapping[str, tuple[Any, ...]] = {
    "ada_rms_norm_t_cond": (False,),
    "attention_sinks": (False,),
    "bias": (False,),
    "is_causal": (True,),
    "layer_rope_theta": (),
    "layer_types": (),
    "logit_scale": (1,),
    "qk_norm": (False,),
}
"""Settings that vLLM 0.32 looks for in the classes of llama, granite, mistral and qwen2, whatever the family, with what
changes nothing."""


def require_known_settings(config: Mapping[str, Any], read: PreTrainedConfig) -> None:
    """Raise ModelError where a setting changes what vLLM computes, and this family has no such setting."""
    own = type(read)()
    for name in ELSEWHERE.keys() & config.keys():
        said = config[name]
        plain = said is None or said in ELSEWHERE[name] or (name == "layer_types" and set(said) == {FULL})
        if not plain and not hasattr(own, name):
            what = f"config.json has a setting that {read.model_type} has not, and engines differ in what it does"
            remedy = "Restore config.json from the model's source, or use another model."
            raise ModelError(what, f"{name}: {str(said)[:80]}", remedy)


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
