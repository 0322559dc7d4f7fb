"""An engine of a toy model: each layer mixes in its own last output, so that one pass gives the same as many steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from troth.node.engine.interface import Computed, SessionKey
from troth.node.errors import OutOfOrder
from troth.protocol.types import Segment

COLUMNS, VOCABULARY, LAYERS = 32, 64, 2
HALF = np.float32(0.5)
EMBEDDING = np.random.default_rng(7).standard_normal((VOCABULARY, COLUMNS)).astype(np.float32)


class ToyEngine:
    """See ``engine.interface.Engine``. ``scale`` other than 1 is another model; ``calls`` counts passes."""

    tokenizer = ""

    def __init__(self, hosted: Segment = Segment(0, LAYERS), scale: float = 1.0) -> None:
        self.slice = hosted
        self.layers, self.hidden_size, self.vocabulary, self.dtype = LAYERS, COLUMNS, VOCABULARY, 0
        self.scale = np.float32(scale)
        self.calls = 0
        self.kept = 0
        """First positions of every text that it need not compute."""
        self.fails: Exception | None = None
        self.released: set[bytes] = set()
        self._lasts: dict[SessionKey, list[list[np.ndarray]]] = {}

    async def forward(self, key: SessionKey, segment: Segment, start: int, inputs: Any) -> Computed:
        self.calls += 1
        if self.fails is not None:
            raise self.fails
        lasts = self._lasts.setdefault(key, [])
        if start > len(lasts):
            raise OutOfOrder("a position before was never computed", start, "Begin again.")
        del lasts[start:]
        rows, ends = self._pass(segment, inputs, lasts[-1] if lasts else None)
        lasts += ends
        return Computed(rows, 0.001, min(self.kept, len(rows)) if start == 0 else 0)

    def _pass(self, segment: Segment, inputs: Any, before: Any) -> tuple[np.ndarray, list[list[np.ndarray]]]:
        states = EMBEDDING[inputs] if inputs.ndim == 1 else inputs
        last = list(before or [np.zeros(COLUMNS, np.float32)] * (segment.end - segment.first))
        rows, ends = [], []
        for row in states:
            mixed = row
            for layer in range(segment.end - segment.first):
                turned = np.sin(mixed + HALF * last[layer])
                mixed = last[layer] = turned if self.scale == 1 else turned * self.scale
            rows.append(mixed)
            ends.append(list(last))
        return np.stack(rows), ends

    async def reference(self, segment: Segment, inputs: Any) -> np.ndarray:
        return self._pass(segment, inputs, None)[0]

    async def logits(self, rows: Any) -> Computed:
        return Computed((rows @ EMBEDDING.T).astype(np.float32), 0.001)

    def holds(self, segment: Segment) -> bool:
        return self.slice.first <= segment.first and segment.end <= self.slice.end

    async def rehost(self, hosted: Segment, keep: Sequence[Segment] = ()) -> None:
        self.slice = hosted

    async def forget(self, key: SessionKey) -> None:
        self._lasts.pop(key, None)

    async def release(self, task_id: bytes) -> None:
        self.released.add(task_id)
        for key in [key for key in self._lasts if key.task_id == task_id]:
            del self._lasts[key]

    @property
    def cache_bytes(self) -> int:
        return sum(len(lasts) for lasts in self._lasts.values())

    async def close(self) -> None:
        self._lasts.clear()
