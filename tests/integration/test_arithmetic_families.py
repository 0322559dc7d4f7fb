"""Canonical layers compute what transformers' own layers compute, up to float32's rounding, for each family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.tiny_decoders import LAYERS, TOKENS, write_tiny_decoder
from transformers import AutoModelForCausalLM

from troth.protocol.arithmetic.layers import layer_rows
from troth.protocol.arithmetic.operations import Operation
from troth.protocol.arithmetic.shapes import GEMMA, LLAMA, layer_shape
from troth.protocol.exact_numbers import NumberFormat

CHANGED = {
    "llama": {"rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "rope_theta": 10_000.0,
    }},
    "qwen3": {"attention_bias": True},
}  # fmt: skip


@pytest.mark.parametrize("family", sorted((LLAMA | GEMMA) - {"gemma"}))
def test_a_layer_is_that_of_transformers(family: str, tmp_path: Path) -> None:
    folder = write_tiny_decoder(family, tmp_path, **CHANGED.get(family, {}))
    model = AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        made = model(torch.from_numpy(TOKENS)[None], output_hidden_states=True, use_cache=False)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    # The last of these is behind the model's own norm, and no layer's output.
    for layer in range(LAYERS - 1):
        shape = layer_shape(folder.config, layer, NumberFormat.FLOAT32)
        given, expected = (made.hidden_states[at][0].numpy() for at in (layer, layer + 1))
        mine = {name: tensor for name, tensor in weights.items() if name.startswith(shape.prefix)}
        found = layer_rows(shape, mine, given).numbers[Operation.OUTPUT]
        size = np.sqrt((expected.astype(np.float64) ** 2).mean(axis=1, keepdims=True))
        assert (np.abs(found - expected) / size).max() < 1e-5, layer
