"""Which models Troth computes, by config.json alone: decoders whose layers pass on states and look back by attention.

This needs no torch, so that a folder can be read without it. Whether transformers' own code of a family can be cut
between layers is seen where it is built (`troth.node.engine.decoder`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from troth.node.errors import ModelError

SIZES = ("num_hidden_layers", "hidden_size", "vocab_size")
LARGEST, MOST_LAYERS = 1 << 24, 1024
SHORTEST = 2
"""Positions of a text: a prompt's and an answer's."""
ATTENTION = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
"""Kinds of layers that keep keys and values and nothing else."""
SHIFTING_ROPES = frozenset({"dynamic", "longrope"})
"""Rotary embeddings whose frequencies follow from how long the text is by now: a position's states then depend on
whether it came in a prefill or in a decode, and engines do it at different lengths."""
OTHER = "Use another model."


def require_decoder(config: Mapping[str, Any]) -> str:
    """The `model_type` of a decoder's configuration.

    Raises:
        ModelError: it is no decoder, keeps more than keys and values, or is not computed alike by engines.
    """
    family = config.get("model_type")
    if not isinstance(family, str) or not family:
        raise ModelError("config.json names no model_type", family, "Restore it from the model's source.")
    if config.get("is_encoder_decoder"):
        raise ModelError("the model has an encoder, and only decoders are served", family, OTHER)
    for name in SIZES:
        size = config.get(name)
        most = MOST_LAYERS if name == "num_hidden_layers" else LARGEST
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= most:
            raise ModelError(f"config.json has no {name}, as decoders have", size, OTHER)
    longest = config.get("max_position_embeddings", LARGEST)
    if isinstance(longest, bool) or not isinstance(longest, int) or longest < SHORTEST:
        raise ModelError("max_position_embeddings in config.json is no number of positions", longest, OTHER)
    if config.get("use_bidirectional_attention") not in {None, False}:
        raise ModelError(
            "the model attends to later positions, so it generates nothing",
            "use_bidirectional_attention",
            "Use a model that generates text.",
        )
    _require_attention(config)
    _require_steady_rope(config)
    return family


def _require_attention(config: Mapping[str, Any]) -> None:
    kinds = config.get("layer_types")
    if kinds is None:
        return
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise ModelError("layer_types in config.json is not a list of names", kinds, OTHER)
    if other := sorted({*kinds} - ATTENTION):
        what = "the model does not slice: some of its layers keep a state that cannot go back to an earlier position"
        raise ModelError(what, ", ".join(other), "Use a model with attention in every layer.")


def _require_steady_rope(config: Mapping[str, Any]) -> None:
    for name in ("rope_scaling", "rope_parameters"):
        found = config.get(name)
        if not isinstance(found, Mapping):
            continue
        # One for all layers, or one for each kind of attention.
        for rope in (found, *(part for part in found.values() if isinstance(part, Mapping))):
            kind = rope.get("rope_type", rope.get("type"))
            if isinstance(kind, str) and kind in SHIFTING_ROPES:
                what = "the model's rotary embedding changes with the length of the text, and engines differ in when"
                raise ModelError(what, kind, "Use a model, or a configuration of it, with another rope_type.")
