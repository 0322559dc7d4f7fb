"""Every family of decoders that transformers builds of layers slices bit for bit; what does not is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from support.tiny_decoders import (  # noqa: E402
    FAMILIES,
    LAYERS,
    TOKENS,
    UNSLICED,
    grow,
    tried,
    write_tiny_decoder,
)

from troth.node.engine import decoder  # noqa: E402
from troth.node.engine.exact_layers import ExactSlice  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine  # noqa: E402
from troth.node.errors import ModelError  # noqa: E402
from troth.node.models.folder import ModelFolder, open_folder  # noqa: E402
from troth.protocol.types import Segment  # noqa: E402

pytestmark = pytest.mark.torch

WHOLE = Segment(0, LAYERS)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - UNSLICED))
async def test_slices_have_the_bits_of_the_whole(family: str, tmp_path: Path) -> None:
    folder = write_tiny_decoder(family, tmp_path / "tiny")
    for dtype in (0, 1):
        trial = await tried(folder, dtype, [1 + dtype])
        assert all(trial), (dtype, trial)


def test_a_model_is_surveyed_once_however_often_it_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, walked = write_tiny_decoder("llama", tmp_path / "tiny"), []
    walk = decoder._Survey._walk
    monkeypatch.setattr(decoder, "_SEEN", {})
    monkeypatch.setattr(decoder._Survey, "_walk", lambda survey: (walked.append(survey), walk(survey)))
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        decoder.Decoder(folder, dtype, torch.device("cpu"))
    assert len(walked) == 2


@pytest.mark.parametrize("family", sorted(UNSLICED))
def test_linear_attention_is_refused_in_a_sentence(family: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"does not slice: some of its layers keep a state .*linear_attention"):
        write_tiny_decoder(family, tmp_path / "tiny")


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{"tie_word_embeddings": False}, {"attention_bias": True}], ids=str)
async def test_heads_of_their_own_and_biases_are_read(changed: dict[str, Any], tmp_path: Path) -> None:
    assert all(await tried(write_tiny_decoder("llama", tmp_path / "tiny", **changed), 1, [2]))


async def test_experts_are_read_one_by_one_as_their_files_have_them(tmp_path: Path) -> None:
    folder = write_tiny_decoder("mixtral", tmp_path / "tiny")
    with safe_open(folder.weight_files[0], "pt") as file:
        names = set(file.keys())
    assert "model.layers.0.block_sparse_moe.experts.3.w1.weight" in names
    upper = TorchEngine(folder, Segment(2, LAYERS), 0)
    assert set(upper._layers.held) == {2, 3}


def nested(path: Path) -> ModelFolder:
    """A Gemma 3 that sees: its decoder lies below `language_model`, beside a part that is not computed."""
    plain = write_tiny_decoder("gemma3_text", path / "plain")
    inner = plain.config
    tensors = {
        name.replace("model.", "model.language_model.", 1): tensor
        for name, tensor in load_file(plain.weight_files[0]).items()
    }
    folder = path / "nested"
    folder.mkdir()
    save_file({**tensors, "model.vision_tower.eye.weight": torch.ones(2, 2)}, folder / "model.safetensors")
    config = {"model_type": "gemma3", "text_config": inner, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return open_folder(folder)


async def test_the_decoder_of_a_model_that_sees_is_served(tmp_path: Path) -> None:
    folder = nested(tmp_path)
    assert folder.layers == LAYERS
    plain = TorchEngine(open_folder(tmp_path / "plain"), WHOLE, 0)
    seeing = TorchEngine(folder, WHOLE, 0)
    np.testing.assert_array_equal(await grow(seeing, TOKENS, (40,)), await grow(plain, TOKENS, (40,)))


def changed_config(folder: ModelFolder, **changed: Any) -> Path:
    (folder.path / "config.json").write_text(json.dumps({**folder.config, **changed}))
    return folder.path


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": ""}, "names no model_type"),
        ({"is_encoder_decoder": True}, "has an encoder"),
        ({"num_hidden_layers": None}, "has no num_hidden_layers"),
        ({"hidden_size": 10**9}, "has no hidden_size"),
        ({"use_bidirectional_attention": True}, "attends to later positions"),
        ({"layer_types": ["mamba"] * LAYERS}, "keep a state that cannot go back"),
        ({"layer_types": "all"}, "not a list of names"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "changes with the length of the text"),
        ({"rope_parameters": {"full_attention": {"rope_type": "longrope"}}}, "changes with the length of the text"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_served_is_refused_by_its_configuration(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = changed_config(write_tiny_decoder("llama", tmp_path / "tiny"), **changed)
    with pytest.raises(ModelError, match=said):
        open_folder(path)


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "a-model-of-tomorrow"}, "transformers does not read config.json"),
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, "no stack of layers"),
        ({"quantization_config": AWQ}, "says that weights are quantised, and none is"),
        ({"hidden_size": 64}, "wrong shape"),
        ({"num_hidden_layers": LAYERS + 1}, f"layer {LAYERS} is incomplete"),
    ],
    ids=["unknown", "another design", "quantised", "another width", "another depth"],
)
def test_what_the_engine_cannot_compute_is_refused_when_it_loads(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = open_folder(changed_config(write_tiny_decoder("llama", tmp_path / "tiny"), **changed))
    with pytest.raises(ModelError, match=said):
        TorchEngine(folder, Segment(0, folder.layers), 0)


def test_layers_that_are_told_of_tokens_are_refused(tmp_path: Path) -> None:
    # Gemma 3n gives each layer embeddings of its own, and passes four streams of states.
    from transformers import Gemma3nTextConfig

    config = Gemma3nTextConfig(
        vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, vocab_size_per_layer_input=96, hidden_size_per_layer_input=8,
        num_kv_shared_layers=0, laurel_rank=4, layer_types=["full_attention"] * 4,
        activation_sparsity_pattern=[0.0] * 4,
    )  # fmt: skip
    save_file({"unused": torch.ones(1)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="does not slice"):
        TorchEngine(open_folder(tmp_path), WHOLE, 0)


async def test_two_tensors_of_one_weight_are_refused(tmp_path: Path) -> None:
    folder = write_tiny_decoder("llama", tmp_path / "tiny")
    extra = {"language_model.model.norm.weight": torch.ones(32)}
    save_file(extra, folder.path / "more.safetensors")
    with pytest.raises(ModelError, match="two tensors are the same weight"):
        TorchEngine(folder, WHOLE, 0)


def test_a_family_that_computes_attention_by_itself_is_in_no_exact_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import LlamaForCausalLM

    folder = write_tiny_decoder("llama", tmp_path / "tiny")
    monkeypatch.setattr(LlamaForCausalLM, "_can_set_attn_implementation", classmethod(lambda cls: False))
    with pytest.raises(ModelError, match="computes its attention by itself"):
        TorchEngine(folder, WHOLE, 0, layers=ExactSlice)
