"""Which quantisations round activations as well as weights: their tolerant classes could not be judged.

A verifier of a tolerant class compares rows with float32 states of the class' weights (`streamed`). Whoever rounds each
layer's inputs to eight bits is as far from these states as a cheat, and every machine is so in its own way. vLLM 0.32
does that:

- of FP8 (`fp8.py`), whatever the checkpoint says: on cards from Ada on and on CPUs that have matrix units; on others
  it does not, so that two honest nodes of one class would differ (`_POSSIBLE_FP8_KERNELS`);
- of compressed-tensors where a group has `input_activations` or `output_activations` (`_get_scheme_from_parts`), of
  NVFP4 too; without them it computes with whole activations (`CompressedTensorsWNA16`, `CompressedTensorsW8A16Fp8`,
  `CompressedTensorsW4A4Fp4(use_a16=True)`);
- where `kv_cache_scheme` has keys and values in eight bits;
- of four-bit integers on CPUs with AMX, unless its environment forbids it, as `EngineSettings.environment` does.

It does not of AWQ and GPTQ, nor of MXFP4 in gpt-oss, where it prefers kernels that take bfloat16
(`_get_priority_backends_for_gpt_oss`); in other families it prefers those that round to MXFP8.
"""

from __future__ import annotations

from collections.abc import Mapping

from troth.node.errors import ModelError
from troth.node.models.folder import ModelFolder

ACTIVATIONS = ("input_activations", "output_activations")
CACHE = "kv_cache_scheme"


def rounded_activations(folder: ModelFolder) -> str:
    """What of a model's quantisation rounds more than weights, as config.json names it; empty where nothing does."""
    settings = folder.quantisation or {}
    method = str(settings.get("quant_method", "")).lower()
    if method == "fp8" or (method == "mxfp4" and folder.text_config.get("model_type") != "gpt_oss"):
        return method
    groups = settings.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        for name in ACTIVATIONS:
            if isinstance(group, Mapping) and group.get(name) is not None:
                return name
    return CACHE if settings.get(CACHE) is not None else ""


def require_judged(folder: ModelFolder) -> None:
    """Raise ModelError where no verifier could judge a tolerant class of such weights."""
    if told := rounded_activations(folder):
        what = "engines round what enters the layers of such a model, and no float32 states show how: no tolerant class"
        remedy = "Register an exact class (--exact --engine torch; of FP8 vLLM has one, too), or take another copy."
        raise ModelError(what, told, remedy)
