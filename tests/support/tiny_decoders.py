"""Tiny random models of every decoder family that is tried: what slices, decodes and loads as transformers does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from troth.node.engine.exact_layers import ExactSlice
from troth.node.engine.interface import SessionKey
from troth.node.engine.packing import Continuation
from troth.node.engine.torch_engine import TORCH_DTYPES, TorchEngine, from_words, to_words
from troth.node.engine.wide_products import wide_products
from troth.node.models.folder import ModelFolder, open_folder
from troth.node.models.importing import write_config
from troth.protocol.types import Segment

LAYERS, VOCABULARY, WINDOW = 4, 96, 6
SLIDING, FULL = "sliding_attention", "full_attention"
MIXED = [SLIDING, FULL, SLIDING, FULL]
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EXPERTS: dict[str, Any] = {"moe_intermediate_size": 16, "num_experts_per_tok": 2}
LATENT: dict[str, Any] = {
    "q_lora_rank": 12, "kv_lora_rank": 10, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5,
    "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1, **EXPERTS,
    "n_group": 2, "topk_group": 1, "num_key_value_heads": 4, "head_dim": 4,
}  # fmt: skip

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": WINDOW, "layer_types": MIXED}),
    "qwen3": ("Qwen3Config", {"tie_word_embeddings": True}),
    "mistral": ("MistralConfig", {"sliding_window": WINDOW}),
    "phi3": ("Phi3Config", {"sliding_window": WINDOW}),
    "gemma2": ("Gemma2Config", {
        "sliding_window": WINDOW, "layer_types": MIXED, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0,
        "query_pre_attn_scalar": 8,
    }),
    "gemma3_text": ("Gemma3TextConfig", {
        "sliding_window": WINDOW, "layer_types": MIXED, "final_logit_softcapping": 3.0, "query_pre_attn_scalar": 8,
    }),
    "olmo2": ("Olmo2Config", {}),
    "olmo3": ("Olmo3Config", {"sliding_window": WINDOW, "layer_types": MIXED}),
    "granite": ("GraniteConfig", {
        "embedding_multiplier": 3.0, "logits_scaling": 4.0, "residual_multiplier": 0.5, "attention_multiplier": 0.3,
        "tie_word_embeddings": True,
    }),
    "glm": ("GlmConfig", {}),
    "glm4": ("Glm4Config", {}),
    "smollm3": ("SmolLM3Config", {"no_rope_layers": [1, 0, 1, 0]}),
    "starcoder2": ("Starcoder2Config", {"sliding_window": WINDOW}),
    "cohere2": ("Cohere2Config", {"sliding_window": WINDOW, "layer_types": MIXED, "logit_scale": 0.25}),
    "exaone4": ("Exaone4Config", {"sliding_window": WINDOW, "layer_types": MIXED}),
    "ernie4_5": ("Ernie4_5Config", {}),
    "seed_oss": ("SeedOssConfig", {}),
    "hunyuan_v1_dense": ("HunYuanDenseV1Config", {}),
    "llama4_text": ("Llama4TextConfig", {
        "attention_chunk_size": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 48, "no_rope_layers": [1, 1, 1, 0], "attn_temperature_tuning": True,
        "floor_scale": 4, "attn_scale": 0.2,
    }),
    "gpt_oss": ("GptOssConfig", {
        "sliding_window": WINDOW, "layer_types": MIXED, "num_local_experts": 4, "num_experts_per_tok": 2,
        # The last elements of an array go through another exponential: as in real models, experts have none left over.
        "intermediate_size": 64,
    }),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2_moe": ("Qwen2MoeConfig", {"num_experts": 4, "shared_expert_intermediate_size": 16, **EXPERTS}),
    "qwen3_moe": ("Qwen3MoeConfig", {"num_experts": 4, "norm_topk_prob": True, **EXPERTS}),
    "granitemoe": ("GraniteMoeConfig", {"num_local_experts": 4, "num_experts_per_tok": 2, "logits_scaling": 2.0}),
    "glm4_moe": ("Glm4MoeConfig", {
        "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
        **EXPERTS,
    }),
    "deepseek_v2": ("DeepseekV2Config", {**LATENT, "topk_method": "group_limited_greedy"}),
    "deepseek_v3": ("DeepseekV3Config", LATENT),
    "minimax_m2": ("MiniMaxM2Config", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "olmoe": ("OlmoeConfig", {"num_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_next": ("Qwen3NextConfig", {"num_experts": 4, **EXPERTS}),
}  # fmt: skip
"""Name: class of the configuration, and what of it differs from `SIZES`."""
UNSLICED = frozenset({"qwen3_next"})
"""Families with linear attention, which are refused."""
TOKENS = np.random.default_rng(5).integers(3, VOCABULARY, size=40)
PIECES = (7, 20, 21, 22, 40)
"""Where a text ends that is given in pieces: across windows and blocks, and one by one."""
KEY = SessionKey(bytes(32), 0, 0)


def write_tiny_decoder(family: str, path: Path, dtype: torch.dtype = torch.float32, **changed: Any) -> ModelFolder:
    """A model folder with random weights, the same at each call, saved by transformers as it saves real ones."""
    named, settings = FAMILIES[family]
    torch.manual_seed(17)
    config = getattr(transformers, named)(**{**SIZES, **settings, "initializer_range": 0.2, **changed})
    model = AutoModelForCausalLM.from_config(config)
    for weight in model.parameters():
        # Norms begin as ones or zeros and biases as zeros, with which a model that forgets them would pass.
        if weight.ndim == 1:
            weight.data.add_(torch.empty_like(weight).normal_(0.0, 0.2))
    model.to(dtype).save_pretrained(path)
    write_config({**model.config.to_dict(), "architectures": [type(model).__name__]}, path)
    (path / "tokenizer.json").write_text("{}")
    return open_folder(path)


class Trial(NamedTuple):
    """What one family did in one dtype."""

    transformers: bool
    head: bool
    slices: bool
    exact: bool
    packed: bool


async def tried(folder: ModelFolder, dtype: int, cuts: Sequence[int]) -> Trial:
    """Whether prefill and logits have the bits of transformers, slices those of the whole in one pass and in pieces,
    an exact slice's decode those of its prefill, and in one pass with others, too; elsewhere such rows are close."""
    whole = TorchEngine(folder, Segment(0, LAYERS), dtype)
    rows, grown = await grow(whole, TOKENS, (40,)), await grow(whole, TOKENS, PIECES)
    states, logits = by_transformers(folder, TORCH_DTYPES[dtype])
    same = [await relayed(folder, dtype, cut, {(40,): rows, PIECES: grown}) for cut in cuts]
    exact = TorchEngine(folder, Segment(0, LAYERS), dtype, layers=ExactSlice)
    steps = (7, 20, *range(21, 41))
    return Trial(
        transformers=np.array_equal(to_words(states, dtype), rows),
        head=np.array_equal(logits, (await whole.logits(rows)).rows),
        slices=all(same),
        exact=np.array_equal(await grow(exact, TOKENS, (40,)), await grow(exact, TOKENS, steps)),
        packed=np.array_equal(among_others(exact, TOKENS), await grow(exact, TOKENS, (40,)))
        and off(among_others(whole, TOKENS), rows, dtype) <= (1e-5, 0.1)[dtype],
    )


def off(found: NDArray[Any], expected: NDArray[Any], dtype: int) -> float:
    """The mean error of rows, a share of their mean size."""
    first, second = (from_words(rows, dtype).double() for rows in (found, expected))
    return float((first - second).abs().mean() / second.abs().mean())


def among_others(engine: TorchEngine, inputs: NDArray[Any]) -> NDArray[Any]:
    """Rows of a text that is computed in passes with others: in pieces beside longer and shorter ones, which go."""
    layers, segment, generator = engine._layers, engine.slice, np.random.default_rng(8)
    caches = [layers.new_cache(segment) for _ in range(4)]
    texts = [inputs, *(generator.integers(3, VOCABULARY, size=64) for _ in caches[1:])]
    rows = []
    with torch.inference_mode():
        while caches[0].length < len(inputs):
            counts = [min(int(generator.integers(1, 9)), len(inputs) - caches[0].length), *generator.integers(0, 9, 3)]
            # Where a family cannot be packed, passes are of one sequence.
            room = [counts[number] and caches[number].length + 9 <= 64 for number in range(4)]
            taking = [number for number in (2, 0, 3, 1) if room[number]] if layers.packs else [0]
            pieces = [Continuation(caches[number], int(counts[number])) for number in taking]
            parts = [
                texts[number][piece.cache.length : piece.cache.length + piece.positions]
                for number, piece in zip(taking, pieces, strict=True)
            ]
            for piece in pieces:
                piece.cache.grow(piece.cache.capacity_for(piece.cache.length + piece.positions))
            states = layers.forward(segment, layers.embed(torch.from_numpy(np.concatenate(parts))), pieces)
            first = sum(counts[number] for number in taking[: taking.index(0)])
            rows.append(states[first : first + counts[0]])
    return to_words(torch.cat(rows), engine.dtype)


async def relayed(folder: ModelFolder, dtype: int, cut: int, expected: Mapping[tuple[int, ...], NDArray[Any]]) -> bool:
    """Whether a text that goes through two slices of their own has the rows that are expected of each way to cut it."""
    lower, upper = (TorchEngine(folder, part, dtype) for part in (Segment(0, cut), Segment(cut, LAYERS)))
    found = {ends: await grow(upper, await grow(lower, TOKENS, ends), ends) for ends in expected}
    return all(np.array_equal(found[ends], rows) for ends, rows in expected.items())


async def grow(engine: TorchEngine, inputs: NDArray[Any], ends: Sequence[int]) -> NDArray[Any]:
    """Rows of inputs that come in pieces; the session begins anew."""
    await engine.forget(KEY)
    bounds = pairwise([0, *ends])
    parts = [(await engine.forward(KEY, engine.slice, start, inputs[start:end])).rows for start, end in bounds]
    return np.concatenate(parts)


def by_transformers(folder: ModelFolder, dtype: torch.dtype) -> tuple[torch.Tensor, NDArray[np.float32]]:
    """States and logits of the whole text without a cache; attention as transformers itself chooses, products as this
    processor multiplies."""
    attention = "eager" if folder.config.get("attn_logit_softcapping") else None
    options = {"attn_implementation": attention} if attention else {}
    model = AutoModelForCausalLM.from_pretrained(folder.path, dtype=dtype, **options).eval()
    with torch.inference_mode(), wide_products(torch.empty(1, len(TOKENS), 0, dtype=dtype)):
        found = model(torch.from_numpy(TOKENS)[None], use_cache=False, output_hidden_states=True)
    return found.hidden_states[-1][0], found.logits[0].float().numpy()
