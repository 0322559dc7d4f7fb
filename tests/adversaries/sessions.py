"""Dishonest sessions: how one segment of one task is computed. Each class breaks one rule, the rest is the real engine.

Rows are (positions, hidden size) float32, as in `troth.node.engine.interface`; positions count from the prompt's first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adversaries.workshop import Workshop
from troth.node.engine.interface import Computed, SessionKey
from troth.node.engine.torch_engine import TorchEngine
from troth.protocol.types import Segment

END_TOKEN = 2
CERTAIN = 1e4
PROMPT_START = 4
FORGED_TOKENS = 16


class Session:
    """An honest session: everything is passed on."""

    def __init__(self, shop: Workshop, key: SessionKey) -> None:
        self.shop = shop
        self.key = key

    async def forward(self, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        """States of new positions."""
        return await self.shop.honest.forward(self.key, segment, start, inputs)

    async def logits(self, position: int, honest: Computed) -> Computed:
        """Logits at a position, given what the head makes of the rows that `forward` returned."""
        return honest


class OtherWeights(Session):
    """Computes with a changed model; `variant` names the change."""

    variant = ""

    def __init__(self, shop: Workshop, key: SessionKey) -> None:
        super().__init__(shop, key)
        self._engine: TorchEngine | None = None

    async def forward(self, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        # Kept for the whole session: the workshop may make another copy meanwhile, and drop this one.
        self._engine = self._engine or await self.shop.variant(self.variant)
        return await self._engine.forward(self.key, segment, start, inputs)


class Noisy(Session):
    """Correct states, each element off by `share` of itself."""

    share = 0.0

    async def forward(self, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        rows, seconds, _ = await super().forward(segment, start, inputs)
        noise = 1 + self.share * np.random.default_rng().standard_normal(rows.shape)
        return Computed((rows * noise).astype(rows.dtype), seconds)


class StaleCache(Session):
    """The attention cache of another request of the same length: only the prompt's last position is computed afresh."""

    async def forward(self, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        if start == 0:
            inputs = np.concatenate([np.roll(inputs[:-1], 7), inputs[-1:]])
        return await super().forward(segment, start, inputs)


class AlteredPrompt(Session):
    """Three tokens of the system prompt are others than the client ordered."""

    async def forward(self, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        if start == 0:
            inputs = inputs.copy()
            inputs[PROMPT_START : PROMPT_START + 3] += 11
        return await super().forward(segment, start, inputs)


class InjectedPrompt(Session):
    """Eight tokens stand before the client's prompt; their own rows are dropped."""

    injected = np.arange(1000, 1008, dtype=np.int64)

    async def forward(self, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        extra = len(self.injected)
        if start:
            return await super().forward(segment, start + extra, inputs)
        rows, seconds, _ = await super().forward(segment, 0, np.concatenate([self.injected, inputs]))
        return Computed(rows[extra:], seconds)


class Greedy(Session):
    """Takes the likeliest token, whatever temperature was ordered."""

    async def logits(self, position: int, honest: Computed) -> Computed:
        return certain(honest, int(np.argmax(honest.rows[0])))


class OtherTemperature(Session):
    """Samples as if at `ratio` times the temperature that was ordered."""

    ratio = 1.0

    async def logits(self, position: int, honest: Computed) -> Computed:
        return Computed((honest.rows / self.ratio).astype(np.float32), honest.seconds)


class WrongSeed(Session):
    """Samples with noise of its own in place of the public noise, at the temperature that is ordered here, 1."""

    async def logits(self, position: int, honest: Computed) -> Computed:
        gumbel = np.random.default_rng().gumbel(size=honest.rows.shape[1])
        return certain(honest, int(np.argmax(honest.rows[0] + gumbel)))


class FakeEnd(Session):
    """Ends the text at its fourth token."""

    def __init__(self, shop: Workshop, key: SessionKey) -> None:
        super().__init__(shop, key)
        self._chosen = 0

    async def logits(self, position: int, honest: Computed) -> Computed:
        self._chosen += 1
        return certain(honest, END_TOKEN) if self._chosen == 4 else honest


class Forged(Session):
    """A cheap model writes the text; then one honest prefill over all of it gives states that no comparison faults."""

    def __init__(self, shop: Workshop, key: SessionKey) -> None:
        super().__init__(shop, key)
        self._rows: NDArray[Any] | None = None
        self._text: list[int] = []
        self._first = 0

    async def forward(self, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        seconds = 0.0
        if self._rows is None:
            self._first = len(inputs) - 1
            self._text = await self._write(segment, inputs)
            whole = np.concatenate([inputs, np.array(self._text[:-1], dtype=inputs.dtype)])
            self._rows, seconds, _ = await super().forward(segment, 0, whole)
        return Computed(self._rows[start : start + len(inputs)], seconds)

    async def _write(self, segment: Segment, prompt: NDArray[Any]) -> list[int]:
        cheap, text, inputs, start = await self.shop.variant("half the layers"), list[int](), prompt, 0
        for _ in range(FORGED_TOKENS):
            rows = (await cheap.forward(self.key, segment, start, inputs)).rows
            text.append(int(np.argmax((await cheap.logits(rows[-1:])).rows[0])))
            start, inputs = start + len(inputs), np.array(text[-1:], dtype=prompt.dtype)
        return text

    async def logits(self, position: int, honest: Computed) -> Computed:
        return certain(honest, self._text[position - self._first])


class Garbage(Session):
    """Random rows, for a verifier that does not want to compute."""

    async def forward(self, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        shape = (len(inputs), self.shop.honest.hidden_size)
        return Computed(np.random.default_rng().standard_normal(shape).astype(np.float32), 0.0)


def certain(honest: Computed, token: int) -> Computed:
    """Logits under which only one token can be chosen."""
    rows = np.zeros_like(honest.rows, dtype=np.float32)
    rows[0, token] = CERTAIN
    return Computed(rows, honest.seconds)


def with_weights(name: str) -> type[OtherWeights]:
    """Sessions that compute with a named variant of the model."""
    return type("OtherWeights", (OtherWeights,), {"variant": name})


def with_noise(share: float) -> type[Noisy]:
    """Sessions with noise of a size."""
    return type("Noisy", (Noisy,), {"share": share})


def at_temperature(ratio: float) -> type[OtherTemperature]:
    """Sessions that sample at another temperature."""
    return type("OtherTemperature", (OtherTemperature,), {"ratio": ratio})
