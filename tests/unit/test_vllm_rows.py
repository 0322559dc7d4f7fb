"""Rows that come from vLLM's process: their frames, their sorting, and those of cached blocks. Needs no vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from troth.node.engine.interface import SessionKey
from troth.node.engine.vllm.blocks import block_name, block_names
from troth.node.engine.vllm.row_board import RowBoard
from troth.node.engine.vllm.row_frames import RowFrame, frame_from_bytes, frame_to_bytes
from troth.node.engine.vllm.row_store import RowStore
from troth.node.engine.vllm.sessions import EngineSessions
from troth.node.engine.vllm.texts import EngineTexts
from troth.node.errors import EngineError
from troth.protocol.types import ZERO_HASH

WIDTH = 3


def rows(start: int, count: int) -> np.ndarray:
    """Rows that say which position they are of."""
    return (np.arange(start, start + count)[:, None] + np.zeros(WIDTH)).astype(np.float32)


@pytest.mark.slow
@given(st.lists(st.tuples(st.text(max_size=8), st.integers(0, 1 << 20), st.integers(1, 5)), max_size=6))
def test_a_frame_survives_its_journey(parts: list[tuple[str, int, int]]) -> None:
    count = sum(part[2] for part in parts)
    sent = np.arange(count * WIDTH, dtype=np.uint16).reshape(count, WIDTH)
    frame = frame_from_bytes(frame_to_bytes(parts, sent.tobytes()), WIDTH, "uint16")
    assert frame.parts == parts
    assert np.array_equal(frame.rows, sent)


@given(st.binary(max_size=200))
def test_junk_is_no_frame(data: bytes) -> None:
    try:
        frame = frame_from_bytes(data, WIDTH, "float32")
    except EngineError:
        return
    assert sum(part[2] for part in frame.parts) == len(frame.rows)


@pytest.mark.parametrize("part", [("a", -1, 2), ("a", 0, -2), ("a", 0, 0), ("a", 0, 3)])
def test_a_frame_that_lies_about_its_rows_is_refused(part: tuple[str, int, int]) -> None:
    with pytest.raises(EngineError, match="other rows"):
        frame_from_bytes(msgspec.msgpack.encode([[part], bytes(2 * WIDTH * 4)]), WIDTH, "float32")


async def test_the_board_sorts_rows_of_several_requests() -> None:
    board = RowBoard()
    board.expect("a")
    board.expect("b")
    board.add(
        RowFrame(
            [("b", 32, 2), ("gone", 0, 1), ("a", 0, 3)], np.concatenate([rows(32, 2), rows(9, 1), rows(0, 3)])
        ).pieces()
    )
    board.add(RowFrame([("a", 3, 1)], rows(3, 1)).pieces())
    assert (await board.first("a"), await board.first("b")) == (0, 32)
    assert np.array_equal(await board.rows("a", 1, 4), rows(1, 3))
    assert np.array_equal(await board.rows("b", 32, 34), rows(32, 2))


async def test_who_waits_for_rows_gets_them_when_they_come() -> None:
    board = RowBoard()
    board.expect("a")
    waiting = asyncio.create_task(board.rows("a", 0, 2))
    await asyncio.sleep(0)
    board.add(RowFrame([("a", 0, 1)], rows(0, 1)).pieces())
    await asyncio.sleep(0)
    assert not waiting.done()
    board.add(RowFrame([("a", 1, 1)], rows(1, 1)).pieces())
    assert np.array_equal(await waiting, rows(0, 2))


async def test_a_request_that_was_put_aside_begins_again() -> None:
    board = RowBoard()
    board.expect("a")
    board.add(RowFrame([("a", 32, 4)], rows(32, 4)).pieces())
    board.add(RowFrame([("a", 0, 40)], rows(0, 40)).pieces())
    assert np.array_equal(await board.rows("a", 0, 40), rows(0, 40))
    board.add(RowFrame([("a", 8, 40)], rows(8, 40)).pieces())
    assert np.array_equal(await board.rows("a", 0, 48), rows(0, 48))


async def test_a_gap_in_a_request_is_no_rows() -> None:
    board = RowBoard()
    board.expect("a")
    board.add(RowFrame([("a", 0, 2)], rows(0, 2)).pieces())
    with pytest.raises(EngineError, match="missing"):
        board.add(RowFrame([("a", 3, 1)], rows(3, 1)).pieces())


async def test_everybody_who_waits_is_told_of_the_end() -> None:
    board = RowBoard()
    board.expect("a")
    waiting = asyncio.create_task(board.first("a"))
    await asyncio.sleep(0)
    board.fail(EngineError("ended"))
    with pytest.raises(EngineError, match="ended"):
        await waiting


def test_a_block_is_named_by_all_that_is_before_it() -> None:
    names = block_names([1, 2, 3, 4, 5], 2)
    assert names == [block_name(ZERO_HASH, [1, 2]), block_name(names[0], [3, 4])]
    assert block_names([9, 2, 3, 4], 2)[1] != names[1]


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.integers(1, 7), st.integers(0, 3))
def test_names_do_not_depend_on_where_one_begins(tokens: list[int], size: int, cut: int) -> None:
    names = block_names(tokens, size)
    cut = min(cut, len(names))
    parent = names[cut - 1] if cut else ZERO_HASH
    assert names[cut:] == block_names(tokens[cut * size :], size, parent)


def test_the_store_gives_back_rows_of_whole_blocks() -> None:
    store, tokens = RowStore(4, 1 << 20), list(range(10))
    store.keep(tokens, 0, rows(0, 10))
    assert store.known(tokens) == 8
    assert np.array_equal(store.first(tokens, 8), rows(0, 8))
    assert store.first(tokens, 6) is None
    assert store.first([0, 1, 2, 9, 4, 5, 6, 7], 4) is None


def test_a_request_that_began_behind_cached_blocks_adds_those_after_them() -> None:
    store, tokens = RowStore(4, 1 << 20), list(range(12))
    store.keep(tokens, 4, rows(4, 8))
    assert store.known(tokens) == 0
    store.keep(tokens, 0, rows(0, 4))
    assert np.array_equal(store.first(tokens, 12), rows(0, 12))


def test_a_request_that_began_inside_of_a_block_keeps_later_ones_only() -> None:
    store, tokens = RowStore(4, 1 << 20), list(range(12))
    store.keep(tokens, 6, rows(6, 6))
    store.keep(tokens, 0, rows(0, 4))
    assert store.known(tokens) == 4


def test_the_store_stays_below_its_limit_and_forgets_the_oldest() -> None:
    block = rows(0, 4).nbytes
    store = RowStore(4, 2 * block)
    for first in (0, 10, 20):
        store.keep([first] * 4, 0, rows(first, 4))
        assert store.bytes <= 2 * block
    assert store.first([0] * 4, 4) is None
    assert store.first([10] * 4, 4) is not None
    store.keep([30] * 4, 0, rows(30, 4))
    assert store.first([20] * 4, 4) is None
    store.clear()
    assert store.bytes == 0


class FakeCore:
    """A core whose requests are answered with one token for each row beyond the prompt's."""

    def __init__(self) -> None:
        self.board, self.dead, self.names = RowBoard(), asyncio.Event(), 0
        self.asked: list[str] = []

    def name(self) -> str:
        self.names += 1
        return f"r{self.names}"

    async def run(self, name: str, prompt: list[int], words: dict[str, Any]) -> AsyncGenerator[Any, None]:
        cached = words.get("cached", 0)
        self.asked.append(name)
        self.board.add([(name, cached, rows(cached, len(prompt) - cached))])
        yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=[7])])
        for position in range(len(prompt), len(prompt) + words["max_tokens"] - 1):
            self.board.add([(name, position, rows(position, 1))])
            yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=[7])])


async def test_rows_of_texts_that_end_together_are_kept_for_who_comes_next() -> None:
    core: Any = FakeCore()
    texts = EngineTexts(RowStore(4, 1 << 20))

    async def written(prompt: list[int], **words: int) -> np.ndarray:
        steps = [step async for step in texts.generate(core, prompt, {"max_tokens": 5, **words})]
        assert [step.token for step in steps] == [7] * 5
        return np.concatenate([step.rows for step in steps])

    prompts = [[number, 2, 3, 4, 5, 6] for number in range(20)]
    found = await asyncio.gather(*(written(prompt) for prompt in prompts))
    assert all(np.array_equal(one, rows(0, 10)) for one in found)
    # Eight positions of the same text come from the cache now, and nothing is computed for them again.
    assert np.array_equal(await written([*prompts[3], 7, 7, 7], cached=8), rows(0, 13))
    assert len(core.asked) == 21
    await asyncio.sleep(0.01)
    assert core.board._requests == {}


async def test_a_text_that_is_broken_off_leaves_nothing_on_the_board() -> None:
    core: Any = FakeCore()
    texts = EngineTexts(RowStore(4, 1 << 20))
    steps = texts.generate(core, [1, 2, 3, 4, 5], {"max_tokens": 9})
    await anext(steps)
    await steps.aclose()
    core.dead.set()
    unbegun = texts.generate(core, [1, 2], {"max_tokens": 9})
    await unbegun.aclose()
    await asyncio.sleep(0.01)
    assert core.board._requests == {}


async def test_who_waits_for_rows_that_nobody_sends_any_more_is_told() -> None:
    board = RowBoard()
    board.expect("a")
    waiting = asyncio.create_task(board.rows("a", 0, 2))
    await asyncio.sleep(0)
    board.drop("a")
    with pytest.raises(EngineError, match="ended"):
        await asyncio.wait_for(waiting, 1)


async def test_room_is_made_by_sessions_that_wait_for_nothing() -> None:
    async def run(_name: str, inputs: Any, _words: Any) -> AsyncGenerator[None, None]:
        async for _ in inputs:
            yield None

    names = iter("abcd")
    core: Any = SimpleNamespace(board=RowBoard(), name=lambda: next(names), run=run, dead=asyncio.Event())
    sessions = EngineSessions()
    keys = [SessionKey(bytes([number]) * 32, 0, 0) for number in range(3)]
    first = await sessions.text(keys[0], [1, 2, 3, 4], 0, core, 5)
    second = await sessions.text(keys[1], [1, 2, 3, 4], 0, core, 5)
    assert first.open  # its rows are still being computed
    core.board.add([("a", 0, rows(0, 4))])
    third = await sessions.text(keys[2], [1, 2], 0, core, 5)
    assert not first.open
    assert second.open
    assert third.open
    await sessions.close()
    assert not second.open
