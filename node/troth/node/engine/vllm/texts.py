"""Texts on one vLLM engine: tokens and rows put together, whichever part of a prompt came from the prefix cache."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.chain.rounds import rounds
from troth.node.engine.interface import TokenStep
from troth.node.engine.vllm.core import Core
from troth.node.engine.vllm.row_store import RowStore
from troth.node.engine.vllm.sampling_words import shake_words
from troth.node.errors import EngineError

PAST_THE_CACHE = {"max_tokens": 1, "skip_reading_prefix_cache": True}


class EngineTexts:
    """`store` has the rows of cached blocks; rows that it has lost are computed again, past the cache."""

    def __init__(self, store: RowStore) -> None:
        self._store = store
        self._left: deque[tuple[Core, str, list[int]]] = deque()
        self._keeping: asyncio.Task[None] | None = None

    async def generate(self, core: Core, prompt: list[int], words: dict[str, Any]) -> AsyncGenerator[TokenStep, None]:
        """Tokens with the rows that were computed for each; see `interface.TokenStep`."""
        name, tokens, done = core.name(), list(prompt), 0
        core.board.expect(name)
        try:
            async with aclosing(core.run(name, prompt, words)) as outputs:
                async for output in outputs:
                    for token in output.outputs[0].token_ids:
                        await rounds.give_way()  # a step of the engine moves all texts at once
                        rows = core.board.here(name, done, len(tokens))
                        if rows is None:
                            rows = await self.rows(core, name, tokens, done, len(tokens))
                        done = len(tokens)
                        tokens.append(int(token))
                        yield TokenStep(int(token), rows)
        finally:
            self._leave(core, name, tokens[:done])

    async def prefill(self, core: Core, tokens: list[int], *, fresh: bool = False) -> NDArray[Any]:
        """Rows of all positions; `fresh`: past the cache."""
        name = core.name()
        core.board.expect(name)
        try:
            await _finish(core, name, tokens, PAST_THE_CACHE if fresh else {"max_tokens": 1})
            rows = await self.rows(core, name, tokens, 0, len(tokens))
        finally:
            core.board.drop(name)
        self._store.keep(tokens, 0, rows)
        return rows

    async def shaken(self, core: Core, tokens: list[int], *, strongly: bool, alike: bool) -> NDArray[Any] | None:
        """Rows of all positions, from entering rows that are changed; nobody else reads its keys and values. None where
        this model's rows cannot be."""
        name = core.name()
        core.board.expect(name)
        # A step of single positions may be a captured graph on a card, in which nothing is changed.
        asked = tokens if len(tokens) > 1 else tokens * 2
        try:
            words = PAST_THE_CACHE | {"extra_args": shake_words(strongly=strongly, alike=alike)}
            await _finish(core, name, asked, words, cache=secrets.token_hex(16))
            rows = await core.board.rows(name, 0, len(tokens))
            # What was preempted was changed twice.
            return rows if await core.call("troth_changed", name) >= len(tokens) else None
        finally:
            core.board.drop(name)

    async def rows(self, core: Core, name: str, tokens: Sequence[int], start: int, end: int) -> NDArray[Any]:
        """Rows [start, end) of a running request, whose text begins with `tokens`."""
        return (await self.rows_and_cached(core, name, tokens, start, end))[0]

    async def rows_and_cached(
        self, core: Core, name: str, tokens: Sequence[int], start: int, end: int
    ) -> tuple[NDArray[Any], int]:
        """The same, and how many of them nobody had to compute for it; rows that were lost are computed once more."""
        first = await core.board.first(name)
        if start >= first:
            return await core.board.rows(name, start, end), 0
        if self._keeping is not None:
            await asyncio.shield(self._keeping)
        cached, found = self._store.first(tokens, first), min(first, end) - start
        if cached is None:
            cached, found = await self.prefill(core, list(tokens[:first]), fresh=True), 0
        return np.concatenate([cached[start:], await core.board.rows(name, first, end)]), found

    def keep(self, tokens: Sequence[int], start: int, rows: NDArray[Any]) -> None:
        """Remember the rows of whole blocks."""
        self._store.keep(tokens, start, rows)

    def _leave(self, core: Core, name: str, tokens: list[int]) -> None:
        """A text ends. Its rows are kept by and by: those of many that end in one step would hold up the loop."""
        self._left.append((core, name, tokens))
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep_left())

    async def _keep_left(self) -> None:
        try:
            while self._left:
                await asyncio.sleep(0)
                core, name, tokens = self._left.popleft()
                with suppress(EngineError):  # of a text that is over; who needs its rows computes them again
                    await self._keep_all(core, name, tokens)
                core.board.drop(name)
        finally:
            self._keeping = None

    async def _keep_all(self, core: Core, name: str, tokens: list[int]) -> None:
        if tokens and not core.dead.is_set():
            first = await core.board.first(name)
            # As they lie there, without a copy.
            for block, start in self._store.missing(tokens, first, len(tokens)):
                self._store.add(block, core.board.pieces(name, start, start + self._store.block))


async def _finish(core: Core, name: str, tokens: list[int], words: dict[str, Any], cache: str = "") -> list[Any]:
    async with aclosing(core.run(name, tokens, words, cache)) as outputs:
        return [output async for output in outputs]
