"""Sessions that are computed together: an exact class has the same bits, nobody waits for a long text, and one that
fails or goes leaves the others alone."""

from __future__ import annotations

import asyncio
import mmap
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from support.tiny_llama import tiny_model  # noqa: E402

from troth.node.engine import attention_cache, torch_engine  # noqa: E402
from troth.node.engine.attention_cache import BLOCK  # noqa: E402
from troth.node.engine.exact_layers import ExactSlice  # noqa: E402
from troth.node.engine.interface import SessionKey, TokenDraw  # noqa: E402
from troth.node.engine.layers import LayerSlice  # noqa: E402
from troth.node.engine.packing import Continuation  # noqa: E402
from troth.node.engine.steps import Returns, StepShare  # noqa: E402
from troth.node.engine.torch_engine import TorchEngine, from_words, to_words  # noqa: E402
from troth.node.errors import NodeBusy, OutOfOrder  # noqa: E402
from troth.node.models.folder import ModelFolder  # noqa: E402
from troth.protocol import tokens  # noqa: E402
from troth.protocol.errors import InvalidTokens  # noqa: E402
from troth.protocol.tokens import Sampling  # noqa: E402
from troth.protocol.types import Hash32, Segment  # noqa: E402

pytestmark = pytest.mark.torch

LAYERS, VOCABULARY, LONGEST = 3, 400, 120
WHOLE, UPPER = Segment(0, LAYERS), Segment(1, LAYERS)
SESSION_BYTES = 2 * LAYERS * 2 * 24 * 4 * BLOCK
"""Of one float32 session of one block: keys and values, two heads of 24 numbers."""
SEQUENCES = 4
CHUNK = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return tiny_model(
        tmp_path_factory.mktemp("llama"),
        vocab_size=VOCABULARY,
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=LAYERS,
        max_position_embeddings=4096,
    )


@pytest.fixture(params=[0, 1], ids=["float32", "bfloat16"])
async def engine(request: pytest.FixtureRequest, folder: ModelFolder) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(folder, WHOLE, request.param, threads=1, layers=ExactSlice)
    yield engine
    await engine.close()


def key(number: int) -> SessionKey:
    return SessionKey(bytes([number]) * 32, 0, 0)


def text(number: int, length: int = LONGEST) -> NDArray[np.int64]:
    return np.random.default_rng(number).integers(0, VOCABULARY, size=length)


class NotedSteps:
    """What an engine computes in each step: positions by sessions' numbers."""

    def __init__(self, engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[dict[int, int]] = []
        self.began = asyncio.Event()
        loop = asyncio.get_running_loop()
        advance = engine._steps._advance

        def noted(shares: Sequence[StepShare]) -> None:
            self.taken.append({share.work.key.task_id[0]: share.positions for share in shares})
            loop.call_soon_threadsafe(self.began.set)
            advance(shares)

        monkeypatch.setattr(engine._steps, "_advance", noted)
        # This model is so small that a chunk would soon hold any text.
        monkeypatch.setattr(engine._steps, "_chunk", lambda seconds, least: CHUNK)


@pytest.fixture
async def steps(engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> NotedSteps:
    return NotedSteps(engine, monkeypatch)


async def alone(engine: TorchEngine, inputs: NDArray[Any], segment: Segment = WHOLE) -> NDArray[Any]:
    """Rows of one prefill while nothing else is computed."""
    rows = (await engine.forward(key(99), segment, 0, inputs)).rows
    await engine.forget(key(99))
    return rows


SLICES: dict[int, tuple[LayerSlice, list[NDArray[Any]]]] = {}


def slice_and_rows(folder: ModelFolder, dtype: int) -> tuple[LayerSlice, list[NDArray[Any]]]:
    """An exact slice, and the rows of each text that is computed by itself."""
    if dtype not in SLICES:
        layers = ExactSlice(folder, WHOLE, (torch.float32, torch.bfloat16)[dtype], torch.device("cpu"))
        rows = []
        for number in range(SEQUENCES):
            cache = layers.new_cache(WHOLE)
            cache.grow(2 * BLOCK)
            tokens = torch.from_numpy(text(number))
            with torch.inference_mode():
                rows.append(
                    to_words(layers.forward(WHOLE, layers.embed(tokens), [Continuation(cache, LONGEST)]), dtype)
                )
        SLICES[dtype] = layers, rows
    return SLICES[dtype]


moves = st.tuples(st.integers(0, SEQUENCES - 1), st.integers(1, 40), st.integers(0, 20))
"""A sequence, how many positions it takes part with, and how far it goes back before."""


@pytest.mark.slow
@settings(max_examples=25)
@given(dtype=st.sampled_from([0, 1]), passes=st.lists(st.lists(moves, min_size=1, max_size=SEQUENCES), max_size=12))
def test_rows_of_an_exact_class_do_not_depend_on_what_else_is_in_a_pass(
    folder: ModelFolder, dtype: int, passes: list[list[tuple[int, int, int]]]
) -> None:
    layers, expected = slice_and_rows(folder, dtype)
    caches = [layers.new_cache(WHOLE) for _ in range(SEQUENCES)]
    for cache in caches:
        cache.grow(2 * BLOCK)
    for one_pass in passes:
        pieces: dict[int, Continuation] = {}
        for number, count, back in one_pass:
            caches[number].length = max(0, caches[number].length - back)
            if count := min(count, LONGEST - caches[number].length):
                pieces[number] = Continuation(caches[number], count)
        if not pieces:
            continue
        spans = {number: slice(cache.length, cache.length + count) for number, (cache, count) in pieces.items()}
        entering = np.concatenate([text(number)[span] for number, span in spans.items()])
        with torch.inference_mode():
            states = layers.forward(WHOLE, layers.embed(torch.from_numpy(entering)), list(pieces.values()))
        found, first = to_words(states, dtype), 0
        for number, span in spans.items():
            count = span.stop - span.start
            np.testing.assert_array_equal(found[first : first + count], expected[number][span])
            first += count


async def written(engine: TorchEngine, number: int, prompt: int, pause: float) -> NDArray[Any]:
    """Rows of a text: its prompt at once, then position by position."""
    inputs = text(number)
    rows = [(await engine.forward(key(number), WHOLE, 0, inputs[:prompt])).rows]
    for position in range(prompt, len(inputs)):
        await asyncio.sleep(pause)
        rows.append((await engine.forward(key(number), WHOLE, position, inputs[position : position + 1])).rows)
    return np.concatenate(rows)


@pytest.mark.slow
async def test_texts_that_are_written_at_the_same_time_share_steps(engine: TorchEngine, steps: NotedSteps) -> None:
    expected = [await alone(engine, text(number)) for number in range(5)]
    steps.taken.clear()
    cancelled = asyncio.create_task(written(engine, 7, 30, 0.001))
    jobs = [asyncio.create_task(written(engine, number, 20 + 17 * number, 0.0005 * number)) for number in range(5)]
    await asyncio.sleep(0.05)
    cancelled.cancel()
    for number, job in enumerate(jobs):
        np.testing.assert_array_equal(await job, expected[number])
    assert max(len(step) for step in steps.taken) >= 3
    alone_steps = 5 * LONGEST - sum(20 + 17 * number for number in range(5))
    assert len(steps.taken) < 0.9 * alone_steps, "most steps should have had several texts"


@pytest.mark.slow
async def test_a_long_prompt_goes_in_chunks_and_others_write_meanwhile(engine: TorchEngine, steps: NotedSteps) -> None:
    long, rows = text(3, 1_000), (await alone(engine, text(1)))
    whole = await alone(engine, long)
    steps.taken.clear()
    await engine.forward(key(1), WHOLE, 0, text(1)[:8])
    reading = asyncio.create_task(engine.forward(key(3), WHOLE, 0, long))
    done = 0
    for position in range(8, 18):
        row = (await engine.forward(key(1), WHOLE, position, text(1)[position : position + 1])).rows
        np.testing.assert_array_equal(row[0], rows[position])
        done += not reading.done()
    assert done >= 8, "a text has to be written while the prompt is read"
    np.testing.assert_array_equal((await reading).rows, whole)
    chunks = [step[3] for step in steps.taken if 3 in step]
    assert sum(chunks) == len(long)
    assert len(chunks) > 5
    assert max(chunks) <= CHUNK


@pytest.mark.slow
async def test_long_prompts_take_turns(engine: TorchEngine, steps: NotedSteps) -> None:
    first = asyncio.create_task(engine.forward(key(1), WHOLE, 0, text(1, 1_500)))
    await asyncio.sleep(0)
    second = await engine.forward(key(2), WHOLE, 0, text(2, 300))
    assert len(second.rows) == 300
    assert not first.done()
    assert len((await first).rows) == 1_500
    assert second.seconds < (await first).seconds


async def test_a_cancelled_prompt_ends_with_its_chunk(engine: TorchEngine, steps: NotedSteps) -> None:
    reading = asyncio.create_task(engine.forward(key(1), WHOLE, 0, text(1, 3_000)))
    await steps.began.wait()
    reading.cancel()
    await asyncio.sleep(0)
    expected = await alone(engine, text(2))
    assert sum(step.get(1, 0) for step in steps.taken) < 1_500
    np.testing.assert_array_equal((await engine.forward(key(1), WHOLE, 0, text(2))).rows, expected)


async def test_where_memory_is_used_up_one_request_fails_and_the_others_go_on(folder: ModelFolder) -> None:
    engine = TorchEngine(folder, WHOLE, 0, threads=1, layers=ExactSlice, cache_bytes=3 * SESSION_BYTES)
    expected = await alone(engine, text(1))
    for number in (1, 2):
        await engine.forward(key(number), WHOLE, 0, text(number)[:BLOCK])
    one, two, new = await asyncio.gather(
        engine.forward(key(1), WHOLE, BLOCK, text(1)[BLOCK : BLOCK + 1]),
        engine.forward(key(2), WHOLE, BLOCK, text(2)[BLOCK : BLOCK + 1]),
        engine.forward(key(3), WHOLE, 0, text(3)),
        return_exceptions=True,
    )
    np.testing.assert_array_equal(one.rows[0], expected[BLOCK])
    for refused in (two, new):
        assert isinstance(refused, NodeBusy), refused
        assert "attention caches" in str(refused)
    assert engine.cache_bytes == 3 * SESSION_BYTES
    await engine.release(key(2).task_id)
    again = (await engine.forward(key(3), WHOLE, 0, text(3)[:BLOCK])).rows
    await engine.release(key(3).task_id)
    np.testing.assert_array_equal(again, (await alone(engine, text(3)[:BLOCK])))
    await engine.close()


async def test_a_pass_that_fails_is_tried_sequence_by_sequence(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, tried = engine._layers.forward, list[int]()
    expected = {number: await alone(engine, text(number)[:9]) for number in (1, 2)}

    def small(segment: Segment, hidden: torch.Tensor, pieces: Sequence[Continuation]) -> torch.Tensor:
        tried.append(len(pieces))
        if hidden.shape[0] > 12:
            raise torch.OutOfMemoryError("the device is full")
        return forward(segment, hidden, pieces)

    monkeypatch.setattr(engine._layers, "forward", small)
    engine._steps.run(lambda: time.sleep(0.1))
    found = await asyncio.gather(
        engine.forward(key(1), WHOLE, 0, text(1)[:9]),
        engine.forward(key(2), WHOLE, 0, text(2)[:9]),
        engine.forward(key(3), WHOLE, 0, text(3)[:15]),
        return_exceptions=True,
    )
    assert tried == [3, 1, 1, 1]
    for number, computed in zip((1, 2), found, strict=False):
        np.testing.assert_array_equal(computed.rows, expected[number])
    assert isinstance(found[2], NodeBusy)
    assert "device's memory" in str(found[2])


async def test_a_text_that_was_forgotten_midway_is_said_to_be_missing(engine: TorchEngine, steps: NotedSteps) -> None:
    reading = asyncio.create_task(engine.forward(key(1), WHOLE, 0, text(1, 2_000)))
    await steps.began.wait()
    await engine.forget(key(1))
    with pytest.raises(OutOfOrder):
        await reading
    assert engine.cache_bytes == 0


async def test_rows_that_were_taken_back_leave_nothing_behind(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = TorchEngine(folder, UPPER, 0, threads=1, layers=ExactSlice)
    rows = np.random.default_rng(3).standard_normal((20, 96), np.float32)
    expected = await alone(engine, rows, UPPER)
    with monkeypatch.context() as patched:
        patched.setattr(torch_engine, "finite", lambda *_: True)  # as layers of its own might leave them
        await engine.forward(key(1), UPPER, 0, np.full((40, 96), np.nan, np.float32))
    found = [(await engine.forward(key(1), UPPER, start, rows[start : start + 5])).rows for start in range(0, 20, 5)]
    np.testing.assert_array_equal(np.concatenate(found), expected)
    await engine.close()


@pytest.mark.slow
async def test_references_go_in_chunks_beside_texts(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TorchEngine(folder, WHOLE, 1, threads=1)
    whole = await engine.reference(WHOLE, text(1, 600))
    steps = NotedSteps(engine, monkeypatch)
    await engine.forward(key(1), WHOLE, 0, text(1)[:8])
    judging = asyncio.gather(*(engine.reference(WHOLE, text(1, 600)) for _ in range(2)))
    for position in range(8, 16):
        await engine.forward(key(1), WHOLE, position, text(1)[position : position + 1])
    assert not judging.done()
    for found in await judging:
        np.testing.assert_allclose(found, whole, atol=1e-4)
    assert len(steps.taken) > 12
    await engine.close()


@pytest.mark.parametrize("reserves", [True, False])
async def test_a_cache_grows_and_keeps_what_is_in_it(
    folder: ModelFolder, reserves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not reserves:
        monkeypatch.setattr(attention_cache, "RESERVES", False)
    engine = TorchEngine(folder, WHOLE, 0, threads=1, layers=ExactSlice)
    whole, rows = await alone(engine, text(1, 500)), []
    for start in range(0, 500, 50):
        rows.append((await engine.forward(key(1), WHOLE, start, text(1, 500)[start : start + 50])).rows)
        if reserves:
            assert engine.cache_bytes == SESSION_BYTES * -(-(start + 50) // BLOCK), "memory is counted in blocks"
    np.testing.assert_array_equal(np.concatenate(rows), whole)
    await engine.close()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is looked up where Linux tells it")
def test_addresses_take_no_memory_before_they_are_written() -> None:
    before = resident_bytes()
    memory = attention_cache.reserved_memory(1 << 30)
    assert memory is not None
    memory[1 << 29] = 1
    assert int(memory[1 << 29]) == 1
    assert int(memory[(1 << 29) + 1]) == 0
    assert resident_bytes() - before < 1 << 28


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def draw(number: int, temperature: float = 0.7) -> TokenDraw:
    return TokenDraw(Sampling(temperature, 0.9), Hash32(bytes([number]) * 32), number)


async def test_tokens_chosen_together_are_those_of_the_rule(engine: TorchEngine) -> None:
    rows = await alone(engine, text(1)[:12])
    found = await asyncio.gather(
        *(engine.choose(key(number), rows[number : number + 1], draw(number, number % 3)) for number in range(12))
    )
    logits = (await engine.logits(rows)).rows
    for number, chosen in enumerate(found):
        gumbel = tokens.noise(draw(number).seed, number, VOCABULARY)
        assert chosen.token == tokens.choose(logits[number], draw(number, number % 3).sampling, gumbel)


async def test_a_row_that_is_no_number_fails_alone(engine: TorchEngine) -> None:
    rows = await alone(engine, text(1)[:2])
    broken = to_words(torch.full_like(from_words(rows[:1], engine.dtype), float("nan")), engine.dtype)
    expected = await engine.choose(key(1), rows[:1], draw(1))
    good, bad = await asyncio.gather(
        engine.choose(key(1), rows[:1], draw(1)), engine.choose(key(2), broken, draw(2)), return_exceptions=True
    )
    assert good.token == expected.token
    assert isinstance(bad, InvalidTokens)


def test_only_sessions_that_come_back_quickly_are_waited_for() -> None:
    now = [10.0]
    returns = Returns(lambda: now[0])
    assert returns.until(0.02) == 0
    returns.went(key(1))
    assert returns.until(0.02) == pytest.approx(10.02)
    now[0] = 10.03
    assert returns.until(0.02) == 0
    returns.came(key(1))
    returns.went(key(1))
    assert returns.until(0.02) == 0, "it stayed away for longer than one waits"
    now[0] = 10.035
    returns.came(key(1))
    returns.went(key(1))
    assert returns.until(0.02) == pytest.approx(10.055)
    assert returns.lately(1.0)
    now[0] = 100.0
    assert not returns.lately(1.0)
    assert returns.until(0.02) == 0


async def test_a_fault_of_the_thread_itself_is_told_and_it_goes_on(
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(engine._steps, "_kind", lambda work: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await engine.forward(key(1), WHOLE, 0, text(1))
    assert len((await engine.forward(key(1), WHOLE, 0, text(1))).rows) == LONGEST


async def test_what_waits_when_an_engine_closes_is_cancelled(engine: TorchEngine, steps: NotedSteps) -> None:
    jobs = [asyncio.create_task(engine.forward(key(n), WHOLE, 0, text(n, 3_000))) for n in range(3)]
    await steps.began.wait()
    await engine.close()
    assert all(
        isinstance(found, asyncio.CancelledError) for found in await asyncio.gather(*jobs, return_exceptions=True)
    )
    with pytest.raises(RuntimeError):
        await engine.forward(key(1), WHOLE, 0, text(1))
