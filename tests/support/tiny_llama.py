"""A small random Llama, and the folder of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from troth.node.models.folder import ModelFolder, open_folder

HIDDEN, VOCABULARY, LAYERS = 32, 48, 2
HEAD = "lm_head.weight"


def tiny_llama(seed: int = 7, **shape: Any) -> LlamaForCausalLM:
    """With random weights that follow from the seed; ``shape`` says what differs in its configuration."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    plain = {
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": 64,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        "max_position_embeddings": 256,
        "initializer_range": 0.3,
    }
    return LlamaForCausalLM(LlamaConfig(**plain | shape)).eval()


def model_folder(model: LlamaForCausalLM, path: Path, tokenizer: str = "{}") -> ModelFolder:
    """The model as an operator has it; a head that is the embedding's matrix is not written twice."""
    tied = model.config.tie_word_embeddings
    path.mkdir(parents=True, exist_ok=True)
    state = {name: value.contiguous() for name, value in model.state_dict().items() if not tied or name != HEAD}
    save_file(state, path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text(json.dumps(model.config.to_dict()))
    (path / "tokenizer.json").write_text(tokenizer)
    return open_folder(path)


def tiny_model(path: Path, seed: int = 7, **shape: Any) -> ModelFolder:
    """Both at once."""
    return model_folder(tiny_llama(seed, **shape), path)
