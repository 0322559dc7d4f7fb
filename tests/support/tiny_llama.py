"""A small random Llama as a model folder."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from troth.node.models.folder import ModelFolder, open_folder

HIDDEN, VOCABULARY, LAYERS = 32, 48, 2


def tiny_model(path: Path, seed: int = 7) -> ModelFolder:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, max_position_embeddings=256,
        initializer_range=0.3,
    )  # fmt: skip
    state = {name: value.contiguous() for name, value in LlamaForCausalLM(config).state_dict().items()}
    path.mkdir()
    save_file({name: value for name, value in state.items() if "lm_head" not in name}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config.to_dict()))
    (path / "tokenizer.json").write_text("{}")
    return open_folder(path)
