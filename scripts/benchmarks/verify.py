"""What one verifier spends, as a share of what the inference spent: processor seconds of this process, same engine.

Inference: one prefill of P tokens, then T − 1 decode steps, and a token choice after each. Verification: one prefill of
P + T − 1 positions, its commitment, the comparison of all rows, and the check of all tokens. The paper claims 0.78 %
(section 7.2.1) but its own Table 4 gives 33 / 1278 = 2.6 %.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.weights import weights
from troth.node.engine.interface import SessionKey
from troth.node.engine.torch_engine import TorchEngine
from troth.protocol import tokens
from troth.protocol.scores import dimension_spread, weighted_rms
from troth.protocol.tensors import Dtype
from troth.protocol.trace import TileLayout
from troth.protocol.types import Segment

PROMPT, OUTPUT, REPEATS = 512, 128, 3
SAMPLING = tokens.Sampling(temperature=0.7, top_p=0.95)


@dataclass(slots=True)
class Run:
    """One request on one engine: what was computed, and the processor seconds of each part."""

    seed: bytes
    states: NDArray[Any]
    output: list[int]
    prefill: float
    decode: float
    choice: float


def measure() -> list[Figure]:
    """Median shares over the repeats, in float32 on one thread."""
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    folder = weights()
    layers = int(folder.config["num_hidden_layers"])
    engine = TorchEngine(folder, Segment(0, layers), Dtype.FLOAT32, threads=1)
    try:
        prompt = np.random.default_rng(5).integers(100, 40_000, PROMPT)
        runs = [await _infer(engine, prompt) for _ in range(REPEATS)]
        checks = [await _verify(engine, prompt, run) for run in runs]
    finally:
        await engine.close()
    inference = statistics.median(run.prefill + run.decode + run.choice for run in runs)
    prefill = statistics.median(check[0] for check in checks)
    rest = statistics.median(check[1] for check in checks)
    return [
        Figure(
            "inference, processor time", inference, "s", note=f"P {PROMPT}, T {OUTPUT}, SmolLM2-135M, float32, batch 1"
        ),
        Figure("verification, prefill", prefill, "s"),
        Figure("verification, commit, compare, check tokens", rest, "s"),
        Figure(
            "one verifier over inference",
            100 * (prefill + rest) / inference,
            "%",
            paper=0.78,
            note="the paper's own Table 4 gives 2.6 %; the ratio falls with P and with the cost of decode over prefill",
        ),
        Figure(
            "decode step over prefill, per position",
            statistics.median((run.decode / (OUTPUT - 1)) / (run.prefill / PROMPT) for run in runs),
            "×",
            note="c in (P + T) / (P + c·T)",
        ),
    ]


async def _infer(engine: TorchEngine, prompt: NDArray[Any]) -> Run:
    key = SessionKey(secrets.token_bytes(32), 0, 0)
    seed = secrets.token_bytes(32)
    prefill, rows = await _timed(lambda: _forward(engine, key, 0, prompt))
    states, output, decode, choice = [rows], [], 0.0, 0.0
    while True:
        position = PROMPT + len(output) - 1
        cost, token = await _timed(lambda: _choose(engine, states[-1][-1:], seed, position))  # noqa: B023 - awaited here
        choice += cost
        output.append(token)
        if len(output) == OUTPUT:
            break
        cost, rows = await _timed(lambda: _forward(engine, key, position + 1, np.array([token])))  # noqa: B023
        decode += cost
        states.append(rows)
    await engine.release(key.task_id)
    return Run(seed, np.concatenate(states), output, prefill, decode, choice)


async def _forward(engine: TorchEngine, key: SessionKey, start: int, inputs: NDArray[Any]) -> NDArray[Any]:
    return (await engine.forward(key, engine.slice, start, inputs)).rows


async def _choose(engine: TorchEngine, row: NDArray[Any], seed: bytes, position: int) -> int:
    logits = (await engine.logits(row)).rows[0]
    return tokens.choose(logits, SAMPLING, tokens.noise(seed, position, len(logits)))


async def _verify(engine: TorchEngine, prompt: NDArray[Any], run: Run) -> tuple[float, float]:
    inputs = np.concatenate([prompt, run.output[:-1]])
    key = SessionKey(secrets.token_bytes(32), 0, 0)
    prefill, states = await _timed(lambda: _forward(engine, key, 0, inputs))
    rest, _ = await _timed(lambda: _judge(engine, states, run))
    await engine.release(key.task_id)
    return prefill, rest


async def _judge(engine: TorchEngine, states: NDArray[Any], run: Run) -> float:
    layout = TileLayout(secrets.token_bytes(32), secrets.token_bytes(32), len(states), states.shape[1], Dtype.FLOAT32)
    layout.commit(states)
    score = weighted_rms(run.states, states, dimension_spread(states)).mean()
    logits = (await engine.logits(states[PROMPT - 1 :])).rows
    tokens.margins(logits, run.output, SAMPLING, seed=run.seed, first_position=PROMPT - 1)
    return float(score)


async def _timed(action: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    start = time.process_time()
    result = await action()
    return time.process_time() - start, result
