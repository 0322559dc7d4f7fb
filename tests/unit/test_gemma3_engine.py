"""Slices of a small random Gemma 3 compute what transformers computes, inside of its windows and beyond them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiny_gemma3 import KINDS, VOCABULARY, WINDOW, transformers_model, write_tiny_gemma3

torch = pytest.importorskip("torch")

from troth.node.engine.interface import SessionKey  # noqa: E402
from troth.node.engine.torch_engine import TORCH_DTYPES, TorchEngine, from_words  # noqa: E402
from troth.node.engine.wide_products import wide_products  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.protocol.types import Segment  # noqa: E402

pytestmark = pytest.mark.torch

WHOLE = Segment(0, len(KINDS))
TOKENS = np.random.default_rng(5).integers(VOCABULARY, size=40)
# Sums of another length are grouped in another way: a cache that drops what is outside of the window and a mask that
# hides it agree up to rounding, 1e-5 in float32; bfloat16 has 2 to 3 digits.
ROUNDING = {0: 1e-5, 1: 0.15}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    torch.set_num_threads(1)
    return write_tiny_gemma3(tmp_path_factory.mktemp("gemma3") / "tiny")


async def run(engine: TorchEngine, bounds: list[int], inputs: Any = TOKENS, segment: Segment | None = None) -> Any:
    """States of inputs that come in pieces, in the engine's words."""
    key, segment = SessionKey(bytes(32), 0, 0), segment or engine.slice
    await engine.forget(key)
    parts = [(await engine.forward(key, segment, start, inputs[start:end])).rows for start, end in pairwise(bounds)]
    return np.concatenate(parts)


def in_one_pass(model: Any, tokens: Any = TOKENS) -> tuple[Any, Any]:
    """States and logits of transformers without a cache, products as this processor multiplies."""
    with torch.inference_mode(), wide_products(torch.empty(1, len(tokens), 0, dtype=model.dtype)):
        states = model.model(torch.from_numpy(tokens)[None], use_cache=False).last_hidden_state[0]
        return states.float(), model(torch.from_numpy(tokens)[None], use_cache=False).logits[0].float()


def step_by_step(model: Any) -> Any:
    """States of transformers with its own cache, a position at a time."""
    found, past = [], None
    with torch.inference_mode():
        for token in TOKENS:
            made = model.model(torch.tensor([[token]]), past_key_values=past, use_cache=True)
            past = made.past_key_values
            found.append(made.last_hidden_state[0])
    return torch.cat(found).float()


@pytest.mark.parametrize("dtype", [0, 1])
@pytest.mark.parametrize("length", [1, WINDOW - 1, WINDOW, WINDOW + 1, len(TOKENS)])
async def test_prefill_is_exactly_that_of_transformers(folder: ModelFolder, dtype: int, length: int) -> None:
    engine = TorchEngine(folder, WHOLE, dtype, threads=1)
    rows = await run(engine, [0, length])
    states, logits = in_one_pass(transformers_model(folder, TORCH_DTYPES[dtype]), TOKENS[:length])
    torch.testing.assert_close(from_words(rows, dtype).float(), states, atol=0, rtol=0)
    torch.testing.assert_close(torch.from_numpy((await engine.logits(rows)).rows), logits, atol=0, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [0, 1])
async def test_decoding_follows_transformers(folder: ModelFolder, dtype: int) -> None:
    rows = await run(TorchEngine(folder, WHOLE, dtype, threads=1), list(range(len(TOKENS) + 1)))
    states = step_by_step(transformers_model(folder, TORCH_DTYPES[dtype]))
    torch.testing.assert_close(from_words(rows, dtype).float(), states, atol=ROUNDING[dtype], rtol=0)


@pytest.mark.parametrize("dtype", [0, 1])
@pytest.mark.parametrize("cuts", [(1,), (3, 11), (WINDOW, WINDOW + 1, 20), (39,)])
async def test_chunks_continue_with_the_right_masks(folder: ModelFolder, dtype: int, cuts: tuple[int, ...]) -> None:
    rows = await run(TorchEngine(folder, WHOLE, dtype, threads=1), [0, *cuts, len(TOKENS)])
    states, _ = in_one_pass(transformers_model(folder, TORCH_DTYPES[dtype]))
    torch.testing.assert_close(from_words(rows, dtype).float(), states, atol=ROUNDING[dtype], rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [0, 1])
@pytest.mark.parametrize("cut", range(1, len(KINDS)))
async def test_any_two_slices_in_a_row_are_the_whole(folder: ModelFolder, dtype: int, cut: int) -> None:
    bounds = [0, 9, *range(10, 20)]
    lower, upper = Segment(0, cut), Segment(cut, WHOLE.end)
    rows = await run(TorchEngine(folder, lower, dtype, threads=1), bounds)
    relayed = await run(TorchEngine(folder, upper, dtype, threads=1), bounds, rows)
    np.testing.assert_array_equal(relayed, await run(TorchEngine(folder, WHOLE, dtype, threads=1), bounds))


async def test_a_slice_serves_segments_inside_it(folder: ModelFolder) -> None:
    engine = TorchEngine(folder, WHOLE, 0, threads=1)
    lower = await run(engine, [0, 40], TOKENS, Segment(0, 2))
    upper = await run(engine, [0, 40], lower, Segment(2, WHOLE.end))
    np.testing.assert_array_equal(upper, await run(engine, [0, 40]))


@pytest.mark.parametrize(
    ("changed", "same"),
    [({"sliding_window": 64}, WINDOW), ({"layer_types": ["full_attention"] * len(KINDS)}, 1)],
    ids=["window", "kinds"],
)
async def test_windows_and_kinds_of_layers_come_from_the_configuration(
    folder: ModelFolder, tmp_path: Path, changed: dict[str, Any], same: int
) -> None:
    # Without a window nothing changes before its end; without sliding layers only the first position stays, since
    # the others are turned by another rotary embedding.
    other = write_tiny_gemma3(tmp_path / "other", **changed)
    first, second = [await run(TorchEngine(one, WHOLE, 0, threads=1), [0, 40]) for one in (folder, other)]
    np.testing.assert_allclose(first[:same], second[:same], atol=1e-5)
    assert (np.abs(first[same:] - second[same:]).max(axis=1) > 1e-3).all()


@pytest.mark.slow
async def test_the_reference_has_the_weights_of_the_class_in_float32(folder: ModelFolder) -> None:
    reference = await TorchEngine(folder, WHOLE, 1, threads=1).reference(WHOLE, TOKENS)
    model = transformers_model(folder, torch.bfloat16)
    rotary = transformers_model(folder, torch.float32).model.rotary_emb
    widened = model.float()
    widened.model.rotary_emb = rotary
    scale = widened.model.embed_tokens.embed_scale
    widened.model.embed_tokens.embed_scale = scale.bfloat16().float()
    assert widened.model.embed_tokens.embed_scale != scale.new_tensor(96**0.5), "the rounding of the scale is tested"
    states, _ = in_one_pass(widened)
    torch.testing.assert_close(torch.from_numpy(reference), states, atol=0, rtol=0)


async def test_logits_without_a_cap_are_linear(tmp_path: Path) -> None:
    folder = write_tiny_gemma3(tmp_path / "open", final_logit_softcapping=None)
    engine = TorchEngine(folder, WHOLE, 0, threads=1)
    _, logits = in_one_pass(transformers_model(folder, torch.float32))
    found = (await engine.logits(await run(engine, [0, 40]))).rows
    np.testing.assert_array_equal(found, logits.numpy())
    assert np.abs(found).max() > 6, "with the cap of the other tests these would be smaller"
