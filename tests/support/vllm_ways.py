"""One way to start vLLM, tried in a process of its own: which kernels there are is settled by the first import.

Usage: python -m support.vllm_ways MODEL RUNNER RANKS, prints the probe of the model as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from troth.node.engine.interface import TokenStep
from troth.node.engine.probe import POSITIONS, PROBED, probe
from troth.node.engine.stress import stress
from troth.node.engine.vllm.engine import VllmEngine
from troth.node.engine.vllm.settings import EngineSettings
from troth.node.models.folder import ModelFolder
from troth.protocol.masks import text_rules
from troth.protocol.request import Request
from troth.protocol.tokens import Sampling, choose, noise
from troth.protocol.transforms import Transforms
from troth.protocol.types import ZERO_HASH, Hash32

SEED = Hash32(bytes([7]) * 32)
ASKED = (
    (3, 0, Transforms(), (0, 0)),
    (40, 1_000_000, Transforms(), (0, 0)),
    (9, 1_000_000, Transforms(), (5, 100_000)),
    (11, 700_000, Transforms(presence=900_000, frequency=500_000), (0, 0)),
)
"""Prompt's length, temperature, what changes logits, and top_k with min_p."""


async def tried(folder: ModelFolder, runner: int, ranks: int) -> dict[str, object]:
    """Everything about one way; raises AssertionError or ModelError."""
    settings = EngineSettings(
        folder.path, 1, positions=PROBED, cache_bytes=1 << 27, threads=1, runner=runner, parallel=ranks
    )
    engine = VllmEngine(folder, settings)
    try:
        found = await probe(engine)
        requests = [
            Request(ZERO_HASH, tuple(range(5, 5 + length)), 6, temperature, 900_000, (), transforms, *cuts)
            for length, temperature, transforms, cuts in ASKED
        ]
        texts = await asyncio.gather(*(_steps(engine, request, SEED) for request in requests))
        for request, steps in zip(requests, texts, strict=True):
            await _require_rule(engine, request, SEED, steps)
        compared = 0
        if runner == ranks == 1:
            compared = (await stress(engine, POSITIONS, seconds=1.0, tell=lambda line: None)).compared
        return {"probe": found, "compared": compared}
    finally:
        await engine.close()


async def _steps(engine: VllmEngine, request: Request, seed: Hash32) -> list[TokenStep]:
    return [step async for step in engine.generate(request, seed)]


async def _require_rule(engine: VllmEngine, request: Request, seed: Hash32, steps: Sequence[TokenStep]) -> None:
    """Every token is that of the protocol's rule for the head's logits, and the rows are those of a prefill."""
    tokens = [step.token for step in steps]
    assert len(tokens) == request.max_tokens
    rows = np.concatenate([step.rows for step in steps])
    fresh = (await engine.prefill([*request.prompt_tokens, *tokens[:-1]], fresh=True)).rows
    assert np.array_equal(rows, fresh)
    first = len(request.prompt_tokens) - 1
    logits = (await engine.logits(rows[first:])).rows
    sampling, rules = Sampling.of(request), text_rules(request, logits.shape[1], "")
    for place, (row, token) in enumerate(zip(logits, tokens, strict=True)):
        gumbel = noise(seed, first + place, len(row)) if sampling.temperature else None
        assert choose(row, sampling, gumbel, None if rules is None else rules.row()) == token
        if rules is not None:
            rules.take_all([token])


if __name__ == "__main__":
    print(json.dumps(asyncio.run(tried(ModelFolder(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])))))
