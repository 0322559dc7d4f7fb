"""Honest runs of vLLM on this machine: what a tolerant class that mixed machines serve must forgive.

Its texts are written alone, four at once and all at once, and are then measured as any other claim. Results of several
machines come together in one folder: the command is run on each of them with the same `--out`, carried along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np

from troth.node.calibration.conditions import HONEST, Condition
from troth.node.calibration.generating import CalibrationPlan, ClaimedRun, seed_of
from troth.node.calibration.prompts import Bucket
from troth.node.engine.interface import WholeEngine
from troth.node.errors import ConfigError
from troth.node.models.folder import ModelFolder
from troth.protocol.request import Request
from troth.protocol.tokens import Sampling
from troth.protocol.types import ZERO_HASH

TOGETHER: dict[str, int | None] = {"alone": 1, "4 together": 4, "all together": None}
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class CalibratedMachine:
    """vLLM on this machine, as a tolerant class has it: with the kernels that it chooses itself."""

    device: str
    cards: int = 1

    @property
    def name(self) -> str:
        """What its measurements are called."""
        if not self.device.startswith("cuda"):
            return self.device
        import torch

        major, minor = torch.cuda.get_device_capability()
        return f"{self.cards} x {torch.cuda.get_device_name()} (sm{major}{minor})"

    @property
    def conditions(self) -> list[Condition]:
        """Ways in which texts are written here."""
        return [Condition(f"vLLM on {self.name}, {how}", HONEST, batch=batch) for how, batch in TOGETHER.items()]

    def claims(
        self, folder: ModelFolder, parts: Sequence[tuple[Condition, Bucket]], plan: CalibrationPlan
    ) -> dict[tuple[str, int], ClaimedRun]:
        """Texts and rows of all parts, by condition and bucket; vLLM has ended when this returns.

        Raises:
            ConfigError: vLLM is not here, or the plan cuts the model, which vLLM does not.
        """
        if len(plan.segments) != 1:
            raise ConfigError("vLLM computes whole models", len(plan.segments), "Use --segments 1.")
        return asyncio.run(self._claims(folder, parts, plan)) if parts else {}

    async def _claims(
        self, folder: ModelFolder, parts: Sequence[tuple[Condition, Bucket]], plan: CalibrationPlan
    ) -> dict[tuple[str, int], ClaimedRun]:
        from troth.node.engine.vllm.engine import VllmEngine
        from troth.node.engine.vllm.settings import EngineSettings

        longest = max(bucket.tokens.shape[1] for _, bucket in parts) + plan.tokens
        cache = 0 if self.device.startswith("cuda") else 1 << 30
        settings = EngineSettings(
            folder.path, plan.dtype, self.device, longest, cache, exact=False, parallel=self.cards
        )  # fmt: skip
        engine = VllmEngine(folder, settings)
        try:
            return {
                (condition.name, bucket.index): await written(engine, bucket, condition.batch, plan.tokens)
                for condition, bucket in parts
            }
        finally:
            await engine.close()


async def written(engine: WholeEngine, bucket: Bucket, batch: int | None, tokens: int) -> ClaimedRun:
    """Texts of a bucket, so many at once, each of `tokens` tokens."""
    size, made = batch or len(bucket.tokens), []
    for first in range(0, len(bucket.tokens), size):
        places = range(first, min(first + size, len(bucket.tokens)))
        made += await asyncio.gather(*(_text(engine, bucket, place, tokens) for place in places))
    return ClaimedRun(np.array([text for text, _ in made], np.int64), (np.stack([rows for _, rows in made]),))


async def _text(engine: WholeEngine, bucket: Bucket, place: int, tokens: int) -> tuple[list[int], np.ndarray]:
    request = _request(bucket.tokens[place], bucket.samplings[place], tokens)
    text, rows = [], []
    async with aclosing(engine.generate(request, seed_of(bucket.first + place))) as steps:
        async for step in steps:
            text.append(step.token)
            rows.append(step.rows)
    return text, np.concatenate(rows)


def _request(prompt: np.ndarray, sampling: Sampling, tokens: int) -> Request:
    words = tuple(int(token) for token in prompt)
    return Request(ZERO_HASH, words, tokens, round(sampling.temperature * MILLION), round(sampling.top_p * MILLION), ())
