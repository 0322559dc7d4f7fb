"""A whole engine without a model: it writes tokens after a moment, and keeps, tells and counts blocks as vLLM does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from support.group_stage import BLOCK, StagedEngine

from troth.node.engine.interface import Cleared, EngineLoad, Stored, TokenStep
from troth.node.engine.vllm.blocks import block_names, packed
from troth.protocol.request import Request
from troth.protocol.types import ZERO_HASH, Hash32

SECONDS = 0.002
"""Of each token that is written."""


class WritingEngine(StagedEngine):
    """`breaks`: fail on the next request for more than one token."""

    vocabulary = 49_152

    def __init__(self) -> None:
        super().__init__()
        self.held: set[bytes] = set()
        self.asked = self.found = 0
        self.breaks = False

    @property
    def load(self) -> EngineLoad:
        return EngineLoad(self.running, 0, 0.0, 1000, BLOCK, self.asked, self.found)

    async def generate(self, request: Request, seed: Hash32) -> AsyncIterator[TokenStep]:  # type: ignore[override]
        if self.breaks and request.max_tokens > 1:
            raise RuntimeError("the staged engine broke")
        self.running += 1
        try:
            names = block_names(request.prompt_tokens, BLOCK)
            most = (len(request.prompt_tokens) - 1) // BLOCK
            held = next((place for place, name in enumerate(names) if name not in self.held), len(names))
            self.asked += len(request.prompt_tokens)
            self.found += min(held, most) * BLOCK
            self._store(request.prompt_tokens, names, held)
            for token in range(request.max_tokens):
                await asyncio.sleep(SECONDS)
                yield TokenStep(token, np.zeros((1, 1), np.float32))
        finally:
            self.running -= 1

    async def empty_cache(self) -> None:
        self.held.clear()
        self.audience.tell(Cleared())

    def _store(self, tokens: tuple[int, ...], names: Any, held: int) -> None:
        if held < len(names):
            self.held.update(names)
            parent = names[held - 1] if held else ZERO_HASH
            fresh = tokens[held * BLOCK : len(names) * BLOCK]
            self.audience.tell(Stored(parent, tuple(names[held:]), packed(fresh)))
