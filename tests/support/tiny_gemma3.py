"""A small random Gemma 3 whose windows are shorter than the texts of the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402
from transformers import Gemma3ForCausalLM, Gemma3TextConfig  # noqa: E402

from troth.node.models.folder import ModelFolder, open_folder  # noqa: E402
from troth.node.models.importing import write_config  # noqa: E402

SLIDING, FULL = "sliding_attention", "full_attention"
KINDS = [SLIDING, SLIDING, FULL, SLIDING, FULL]
WINDOW = 5
VOCABULARY = 200


def write_tiny_gemma3(path: Path, **changed: Any) -> ModelFolder:
    """A model folder with random weights, the same at each call.

    The square root of the hidden size is not a bfloat16 number, so that rounding the embedding's scale shows.
    """
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 96, "intermediate_size": 128, "num_hidden_layers": len(KINDS),
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "query_pre_attn_scalar": 24,
        "layer_types": KINDS, "sliding_window": WINDOW, "max_position_embeddings": 256, "initializer_range": 0.2,
        "final_logit_softcapping": 6.0,
    }  # fmt: skip
    torch.manual_seed(13)
    model = Gemma3ForCausalLM(Gemma3TextConfig(**{**settings, **changed}))
    for name, weight in model.named_parameters():
        if "norm" in name:
            # They begin as zeros, with which a norm that forgets them would pass.
            weight.data.normal_(0.0, 0.3)
    path.mkdir()
    state = {name: value.contiguous() for name, value in model.state_dict().items() if "lm_head" not in name}
    save_file(state, path / "model.safetensors", {"format": "pt"})
    write_config({**model.config.to_dict(), "architectures": ["Gemma3ForCausalLM"]}, path)
    (path / "tokenizer.json").write_text("{}")
    return open_folder(path)


def transformers_model(folder: ModelFolder, dtype: Any) -> Gemma3ForCausalLM:
    """The same folder as transformers loads it."""
    return Gemma3ForCausalLM.from_pretrained(folder.path, dtype=dtype).eval()
