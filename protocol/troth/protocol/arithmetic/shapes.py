"""How a layer computes, read from a model's configuration: the Llama and the Gemma families.

Canonical arithmetic knows decoders with root-mean-square norms, rotary embeddings over whole heads, attention with
shared keys, and a gated feed-forward part. A configuration that asks for anything else is refused, not approximated.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from troth.protocol.architecture import text_part
from troth.protocol.arithmetic.operations import Activation, LayerShape
from troth.protocol.arithmetic.rounding import UNIT_BITS, round_ratio, units
from troth.protocol.errors import InvalidStep
from troth.protocol.exact_numbers import NumberFormat

LLAMA, GEMMA = frozenset({"llama", "mistral", "qwen2", "qwen3"}), frozenset({"gemma", "gemma2", "gemma3_text"})
HEAD_NORMS = frozenset({"qwen3", "gemma3_text"})
FRAMED = frozenset({"gemma2", "gemma3_text"})
SCALED_BY_SCALAR = FRAMED
ACTIVATIONS = {"silu": Activation.SILU, "gelu_pytorch_tanh": Activation.GELU_TANH}
OTHER = "Such a model's disputes are left to the court."
_PRECISE = Context(prec=60)


def layer_shape(config: Mapping[str, Any], layer: int, number_format: NumberFormat) -> LayerShape:
    """The shape of one layer of the model with this config.json.

    Raises:
        InvalidStep: the model computes otherwise than is known here, or has no such layer.
    """
    text = text_part(config)
    family = text.get("model_type")
    if family not in LLAMA | GEMMA:
        raise InvalidStep("The model is of no family that is checked", family, OTHER)
    if not 0 <= layer < int(text["num_hidden_layers"]):
        raise InvalidStep("The model has no such layer", layer, "Take one below num_hidden_layers.")
    if text.get("mlp_bias") or text.get("partial_rotary_factor", 1.0) != 1.0:
        raise InvalidStep("The model has biases or part rotations that are not checked", family, OTHER)
    head_width = int(text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"])
    sliding = _is_sliding(text, family, layer)
    scalar = text["query_pre_attn_scalar"] if family in SCALED_BY_SCALAR else head_width
    cap = text.get("attn_logit_softcapping") if family in FRAMED else None
    return LayerShape(
        prefix=f"model.layers.{layer}.",
        format=number_format,
        hidden=int(text["hidden_size"]),
        heads=int(text["num_attention_heads"]),
        key_heads=int(text.get("num_key_value_heads") or text["num_attention_heads"]),
        head_width=head_width,
        intermediate=int(text["intermediate_size"]),
        window=int(text["sliding_window"]) if sliding else 0,
        epsilon=float_bits(text.get("rms_norm_eps", 1e-6)),
        scale=float_bits(float(scalar) ** -0.5),
        cap=float_bits(cap) if cap else 0,
        frequencies=_frequencies(_rope(text, family, sliding=sliding), head_width),
        activation=_activation(text),
        biased=family == "qwen2" or bool(text.get("attention_bias")),
        output_biased=family != "qwen2" and bool(text.get("attention_bias")),
        head_norms=family in HEAD_NORMS,
        shifted=family in GEMMA,
        framed=family in FRAMED,
    )


def float_bits(number: float) -> int:
    """The bits of the float32 nearest to a float."""
    return int(np.float32(number).view(np.uint32))


def _activation(text: Mapping[str, Any]) -> Activation:
    name = text.get("hidden_activation") or text.get("hidden_act") or "gelu_pytorch_tanh"
    # Configurations of Gemma say "gelu" in hidden_act and mean the approximation, as hidden_activation then does.
    if name not in ACTIVATIONS:
        raise InvalidStep("The model's activation is not checked", name, OTHER)
    return ACTIVATIONS[name]


def _is_sliding(text: Mapping[str, Any], family: str, layer: int) -> bool:
    if not text.get("sliding_window"):
        return False
    kinds = text.get("layer_types")
    if kinds is not None:
        if kinds[layer] not in {"full_attention", "sliding_attention"}:
            raise InvalidStep("The layer's attention is not checked", kinds[layer], OTHER)
        return bool(kinds[layer] == "sliding_attention")
    match family:
        case "mistral":
            return True
        case "gemma2":
            return layer % 2 == 0
        case "gemma3_text":
            return (layer + 1) % int(text.get("sliding_window_pattern", 6)) != 0
        case _:
            return bool(text.get("use_sliding_window")) and layer >= int(text.get("max_window_layers", 0))


def _rope(text: Mapping[str, Any], family: str, *, sliding: bool) -> Mapping[str, Any]:
    """Base and kind of the rotary embedding, which may differ between kinds of attention."""
    found = text.get("rope_parameters")
    if found is not None:
        kind = "sliding_attention" if sliding else "full_attention"
        parts: Mapping[str, Any] = found.get(kind, found)
        return parts
    if family == "gemma3_text" and sliding:
        return {"rope_theta": text.get("rope_local_base_freq", 10_000.0), "rope_type": "default"}
    scaling = text.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    return {"rope_theta": text.get("rope_theta", 10_000.0), **scaling, "rope_type": kind}


def _frequencies(rope: Mapping[str, Any], head_width: int) -> tuple[int, ...]:
    """[1 / [base ** [2 i / width]32]32]32, as engines compute it, each step correctly rounded."""
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise InvalidStep("The rotary embedding covers heads in part", rope["partial_rotary_factor"], OTHER)
    base = Decimal(units(float_bits(rope["rope_theta"]))) / (1 << UNIT_BITS)
    found = []
    for i in range(0, head_width, 2):
        exponent = units(round_ratio(i, head_width, 0, NumberFormat.FLOAT32))
        power = Fraction(_PRECISE.power(base, _PRECISE.divide(Decimal(exponent), Decimal(1 << UNIT_BITS))))
        bits = round_ratio(power.numerator, power.denominator, 0, NumberFormat.FLOAT32)
        found.append(round_ratio(1 << UNIT_BITS, units(bits), 0, NumberFormat.FLOAT32))
    match rope.get("rope_type", "default"):
        case "default":
            return tuple(found)
        case "linear":
            factor = units(float_bits(rope["factor"]))
            return tuple(round_ratio(units(bits), factor, 0, NumberFormat.FLOAT32) for bits in found)
        case "llama3":
            return tuple(float_bits(number) for number in _stretched(rope, np.array(found, np.uint32).view(np.float32)))
        case other:
            raise InvalidStep("The rotary embedding is of a kind that is not checked", other, OTHER)


def _stretched(rope: Mapping[str, Any], frequencies: Any) -> Any:
    """Llama 3's: long waves are slower by a factor, short ones as they were, between them a mixture, in float32."""
    factor, low, high = (np.float32(rope[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    context = np.float32(rope["original_max_position_embeddings"])
    waves = np.float32(2 * np.pi) / frequencies
    share = (context / waves - low) / (high - low)
    mixed = (1 - share) * frequencies / factor + share * frequencies
    slow = np.where(waves > context / low, frequencies / factor, frequencies)
    between = ~(waves < context / high) & ~(waves > context / low)
    return np.where(between, mixed, slow)
