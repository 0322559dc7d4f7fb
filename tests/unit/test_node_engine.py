"""Slices of a small random Llama compute what transformers computes, in any cut and any chunking."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.tiny_llama import model_folder, tiny_llama  # noqa: E402
from transformers import LlamaForCausalLM  # noqa: E402

from troth.node.engine.interface import BoundedEngine, SessionKey  # noqa: E402
from troth.node.engine.shaking import STRONGER, Shake  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine, from_words, to_words  # noqa: E402
from troth.node.errors import BadInput, ModelError, NodeBusy, OutOfOrder  # noqa: E402
from troth.node.models.folder import ModelFolder, open_folder  # noqa: E402
from troth.node.models.quantise import quantise  # noqa: E402
from troth.protocol.tokens import Sampling, choices  # noqa: E402
from troth.protocol.types import Hash32, Segment  # noqa: E402

pytestmark = pytest.mark.torch

TOKENS = np.array([3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 3])
WHOLE = Segment(0, 4)


def key(task: int, segment: int = 0) -> SessionKey:
    return SessionKey(bytes([task]) * 32, segment, 0)


@pytest.fixture(scope="module")
def reference_model() -> LlamaForCausalLM:
    return tiny_llama(num_hidden_layers=4)


@pytest.fixture(scope="module")
def folder(reference_model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return model_folder(reference_model, tmp_path_factory.mktemp("tiny"))


@pytest.fixture
async def engine(folder: ModelFolder) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(folder, WHOLE, 0, threads=1)
    yield engine
    await engine.close()


async def forward(engine: TorchEngine, key: SessionKey, segment: Segment, start: int, inputs: Any) -> np.ndarray:
    return (await engine.forward(key, segment, start, inputs)).rows


def expected_states(model: LlamaForCausalLM) -> np.ndarray:
    with torch.inference_mode():
        return model.model(torch.from_numpy(TOKENS)[None]).last_hidden_state[0].numpy()


async def test_prefill_equals_transformers(engine: TorchEngine, reference_model: LlamaForCausalLM) -> None:
    rows = await forward(engine, key(1), WHOLE, 0, TOKENS)
    np.testing.assert_allclose(rows, expected_states(reference_model), atol=1e-5)
    with torch.inference_mode():
        expected = reference_model(torch.from_numpy(TOKENS)[None]).logits[0].numpy()
    np.testing.assert_allclose((await engine.logits(rows)).rows, expected, atol=1e-4)


@pytest.mark.parametrize("dtype", [0, 1])
@pytest.mark.parametrize(
    "sampling", [Sampling(0.0, 1.0), Sampling(1.0, 1.0), Sampling(0.7, 0.8, 10), Sampling(1.5, 0.95, 0, 0.02)], ids=str
)
async def test_choices_are_those_of_the_logits(folder: ModelFolder, dtype: int, sampling: Sampling) -> None:
    engine, seed = TorchEngine(folder, WHOLE, dtype, threads=1), Hash32(bytes(range(32)))
    rows = await forward(engine, key(1), WHOLE, 0, TOKENS)
    logits = (await engine.logits(rows)).rows
    expected = choices(logits, sampling, seed=seed, first_position=4)
    assert await engine.choices(rows, sampling, seed=seed, first_position=4) == expected
    await engine.close()


@pytest.mark.parametrize("cuts", [(1,), (5,), (1, 2, 3, 9), tuple(range(1, 12))])
async def test_chunks_continue_with_the_right_mask_and_positions(
    engine: TorchEngine, reference_model: LlamaForCausalLM, cuts: tuple[int, ...]
) -> None:
    bounds = [0, *cuts, len(TOKENS)]
    parts = [await forward(engine, key(2), WHOLE, start, TOKENS[start:end]) for start, end in pairwise(bounds)]
    np.testing.assert_allclose(np.concatenate(parts), expected_states(reference_model), atol=1e-5)


async def test_two_slices_in_a_row_equal_the_whole(folder: ModelFolder, engine: TorchEngine) -> None:
    first, last = TorchEngine(folder, Segment(0, 1), 0), TorchEngine(folder, Segment(1, 4), 0)
    rows = await forward(last, key(3, 1), Segment(1, 4), 0, await forward(first, key(3), Segment(0, 1), 0, TOKENS))
    np.testing.assert_array_equal(rows, await forward(engine, key(3), WHOLE, 0, TOKENS))
    with pytest.raises(BadInput):
        await forward(last, key(4), WHOLE, 0, TOKENS)
    with pytest.raises(ModelError):
        await first.logits(rows)


async def test_going_back_forgets_what_came_after(engine: TorchEngine) -> None:
    whole = await forward(engine, key(5), WHOLE, 0, TOKENS)
    other = TOKENS[::-1].copy()
    await forward(engine, key(6), WHOLE, 0, np.concatenate([TOKENS[:4], other]))
    again = await forward(engine, key(6), WHOLE, 4, TOKENS[4:])
    np.testing.assert_allclose(again, whole[4:], atol=1e-5)


async def test_gaps_and_nonsense_are_refused_and_change_nothing(engine: TorchEngine) -> None:
    with pytest.raises(OutOfOrder):
        await forward(engine, key(7), WHOLE, 3, TOKENS)
    outside = (np.array([48]), np.array([-1]), np.array([2**64 - 1], np.uint64))
    for bad in (*outside, np.array([], dtype=np.int64), TOKENS[None], np.array(3), np.array([np.nan]), np.array(["a"])):
        with pytest.raises(BadInput):
            await forward(engine, key(7), WHOLE, 0, bad)
    with pytest.raises(BadInput):
        await forward(engine, key(7), Segment(1, 4), 0, np.zeros((2, 31), np.float32))
    with pytest.raises(BadInput, match="no positions"):
        await forward(engine, key(7), WHOLE, -1, TOKENS)


@pytest.mark.parametrize("dtype", [0, 1])
async def test_rows_that_are_no_states_are_not_computed_with(folder: ModelFolder, dtype: int) -> None:
    engine = TorchEngine(folder, Segment(1, 4), dtype, threads=1)
    plain = np.ones((3, engine.hidden_size), np.float32)
    good = to_words(torch.from_numpy(plain).to((torch.float32, torch.bfloat16)[dtype]), dtype)
    whole = await forward(engine, key(8, 1), Segment(1, 4), 0, good)
    for number in (np.nan, -np.inf, 2.0**40):
        broken = plain.copy()
        broken[1, 5] = number
        words = to_words(torch.from_numpy(broken).to((torch.float32, torch.bfloat16)[dtype]), dtype)
        with pytest.raises(BadInput, match="NaN or infinity"):
            await forward(engine, key(8, 1), Segment(1, 4), 0, words)
        with pytest.raises(BadInput, match="NaN or infinity"):
            await engine.reference(Segment(1, 4), words)
    np.testing.assert_array_equal(await forward(engine, key(8, 1), Segment(1, 4), 0, good), whole)
    await engine.close()


async def test_nothing_is_computed_beyond_the_positions_that_the_model_knows(tmp_path: Path) -> None:
    folder = model_folder(tiny_llama(max_position_embeddings=16), tmp_path / "short")
    engine, whole = TorchEngine(folder, Segment(0, 2), 0, threads=1), Segment(0, 2)
    assert isinstance(engine, BoundedEngine)
    assert engine.positions == 16
    text = np.arange(17)
    await forward(engine, key(1), whole, 0, text[:16])
    for start in (0, 1, 16):
        with pytest.raises(BadInput, match="longer than any that the model knows: 17"):
            await forward(engine, key(1), whole, start, text[start:])
    for run in (engine.reference, engine.shaken, engine.otherwise):
        with pytest.raises(BadInput, match="It knows 16"):
            await run(whole, text)
    await engine.close()


async def test_memory_is_bounded_and_released(folder: ModelFolder) -> None:
    session_bytes = 2 * 4 * 2 * 64 * 8 * 4
    engine = TorchEngine(folder, WHOLE, 0, cache_bytes=2 * session_bytes)
    for task in (1, 2):
        await forward(engine, key(task), WHOLE, 0, TOKENS)
    with pytest.raises(NodeBusy):
        await forward(engine, key(3), WHOLE, 0, TOKENS)
    with pytest.raises(NodeBusy, match="129 positions need more memory for attention than this node has") as never:
        await forward(engine, key(3), WHOLE, 0, np.resize(TOKENS, 129))
    assert "waiting does not help" in never.value.remedy
    await forward(engine, key(1), WHOLE, len(TOKENS), TOKENS[:1])
    await engine.release(key(1).task_id)
    await forward(engine, key(3), WHOLE, 0, TOKENS)
    with pytest.raises(OutOfOrder):
        await forward(engine, key(1), WHOLE, len(TOKENS), TOKENS[:1])


async def test_bfloat16_words_and_the_float32_reference(folder: ModelFolder, reference_model: LlamaForCausalLM) -> None:
    engine = TorchEngine(folder, WHOLE, 1)
    rows = await forward(engine, key(1), WHOLE, 0, TOKENS)
    assert rows.dtype == np.uint16
    reference = await engine.reference(WHOLE, TOKENS)
    assert reference.dtype == np.float32
    low = from_words(rows, 1).float().numpy()
    spread = reference.std(axis=0)
    error = np.sqrt((((low - reference) / spread) ** 2).mean())
    assert 1e-4 < error < 0.1
    # The reference uses the bfloat16 weights, so it differs from the float32 model and not only by rounding of states.
    assert np.abs(reference - expected_states(reference_model)).max() > 1e-4


@pytest.mark.parametrize(("dtype", "part"), [(0, 2.0**-21), (1, 2.0**-7)])
async def test_shaken_rows_differ_by_their_last_bits_and_anew_each_time(
    folder: ModelFolder, dtype: int, part: float
) -> None:
    """What is changed is within the format, four times as much where it is asked for, and never the same again."""
    entering = torch.full((1, 4096), 1.5, dtype=(torch.float32, torch.bfloat16)[dtype])
    for times in (1, STRONGER):
        apart = (Shake(times)(entering).double() / 1.5 - 1).abs().max()
        assert part * times / 2 < apart < part * times * 1.5
    engine = TorchEngine(folder, WHOLE, dtype)
    plain = await forward(engine, key(1), WHOLE, 0, TOKENS)
    runs = [await engine.shaken(WHOLE, TOKENS, strongly=hard) for hard in (False, False, True)]
    assert {run.dtype for run in runs} == {plain.dtype}
    assert len({run.tobytes() for run in (*runs, plain)}) == 4
    wide = [from_words(run, dtype).float().numpy() for run in (plain, *runs)]
    assert max(float(np.abs(one - wide[0]).max() / np.abs(wide[0]).max()) for one in wide[1:]) < 64 * part
    moved = [float(np.square(one - wide[0]).mean() ** 0.5) for one in wide[1:]]
    assert dtype or moved[2] > 1.5 * max(moved[:2]), "in float32 rows move by as much as what enters"
    assert engine.cache_bytes, "the session's cache stays, and these have none"
    await engine.close()


async def test_rows_that_are_changed_alike_are_so_over_pieces_and_differ_from_run_to_run(folder: ModelFolder) -> None:
    """What a kernel does to a repeated id it does each time; changes of each row by itself would average out."""
    rows, shake = torch.full((1, 6, 64), 1.5), Shake(alike=True)
    changed = shake(rows)
    assert all(torch.equal(row, changed[0, 0]) for row in changed[0])
    assert torch.equal(shake(rows[:, 4:]), changed[:, 4:]), "a long prompt is computed in pieces"
    assert not torch.equal(changed, rows)
    assert not torch.equal(Shake(alike=True)(rows), changed)
    alone = Shake()(rows)
    assert not any(torch.equal(row, alone[0, 0]) for row in alone[0, 1:])
    engine = TorchEngine(folder, Segment(0, 1), 0)
    repeated = np.full(8, 5)
    plain = await forward(engine, key(1), Segment(0, 1), 0, repeated)

    async def together(alike: bool) -> float:
        moved = await engine.shaken(Segment(0, 1), repeated, alike=alike) - plain
        unit = moved / np.linalg.norm(moved, axis=1, keepdims=True)
        return float((unit @ unit.T).mean())

    alone, alike = [np.mean([await together(kind) for _ in range(12)]) for kind in (False, True)]
    assert alone < 0.6 < alike, "rows of a repeated id move in one direction"
    await engine.close()


async def test_quantised_weights_change_the_states(folder: ModelFolder, tmp_path: Path, engine: TorchEngine) -> None:
    lines: list[str] = []
    cheaper = TorchEngine(quantise(folder, tmp_path / "int8", 8, lines.append), WHOLE, 0)
    honest, cheat = await forward(engine, key(1), WHOLE, 0, TOKENS), await forward(cheaper, key(1), WHOLE, 0, TOKENS)
    error = np.sqrt((((honest - cheat) / honest.std(axis=0)) ** 2).mean())
    assert 1e-3 < error < 0.5
    assert len(lines) == 1


def test_incomplete_folders_are_named(tmp_path: Path, folder: ModelFolder) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        open_folder(tmp_path)
    with pytest.raises(ModelError, match="last layer"):
        TorchEngine(folder, Segment(0, 5), 0)
