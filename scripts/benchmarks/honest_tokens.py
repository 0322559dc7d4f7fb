"""Honest tokens against proofs of a wrong one: whether any rival would convict a node that chose honestly.

Choices are those of the torch engine over texts that it writes, at temperatures 0 and 0.8 in turns; each is compared
with every other token. Logits are taken in float64, whose own error is a 2^-29th of the slack: where a
rival uses more than 0.999 of the slack, the contract's integers decide. What is measured is kept, a line for each text,
so that the benchmark goes on where it was stopped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.wrong_token_scene import HEAD

from benchmarks.figures import Figure
from benchmarks.weights import HOME, weights
from troth.node.engine.head import find_head, head_numbers, slack_of
from troth.node.engine.interface import SessionKey
from troth.node.engine.torch_engine import TorchEngine
from troth.node.models.folder import ModelFolder
from troth.node.models.tensor_files import read_rows
from troth.protocol.exact_numbers import NumberFormat, exact_logits, unit_bits
from troth.protocol.tensors import Dtype, widen
from troth.protocol.tokens import noise
from troth.protocol.types import Hash32, Segment

KEPT = HOME / "honest-tokens.jsonl"
POSITIONS = 128
TEMPERATURE = 0.8
DTYPES = (Dtype.FLOAT32, Dtype.BFLOAT16)
NEAR = 0.999
"""Of the slack: from here on exact integers are asked."""
LEAST_SLACK_BITS = 24
"""What the contract grants on top: 2**-24."""
Numbers = NDArray[Any]


def measure_tokens(texts: int, kept: Path = KEPT) -> list[Figure]:
    """Weigh texts in both dtypes until so many of each are kept."""
    figures = []
    for dtype in DTYPES:
        found = [one for one in _lines(kept) if one["dtype"] == dtype.name.lower()]
        if len(found) < texts:
            asyncio.run(_weigh(dtype, range(len(found), texts), kept))
        mine = [one for one in _lines(kept) if one["dtype"] == dtype.name.lower()]
        figures += _told(dtype, mine[:texts])
    return figures


def _lines(kept: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kept.read_text().splitlines()] if kept.is_file() else []


async def _weigh(dtype: Dtype, numbers: range, kept: Path) -> None:
    folder = weights()
    engine = TorchEngine(folder, Segment(0, folder.layers), int(dtype), threads=1)
    try:
        for number in numbers:
            prompt = np.random.default_rng([11, number]).integers(100, 40_000, 8)
            rows, logits = await _written(engine, prompt, number)
            temperature = 0.0 if number % 2 == 0 else TEMPERATURE
            found = await asyncio.to_thread(_compare, folder, dtype, rows, logits, temperature)
            with kept.open("a") as file:
                file.write(json.dumps({"dtype": dtype.name.lower(), "text": number} | found) + "\n")
    finally:
        await engine.close()


async def _written(engine: TorchEngine, prompt: Numbers, number: int) -> tuple[Numbers, Numbers]:
    """Rows and logits of a text that the model writes, so that states are those of real answers."""
    key = SessionKey(number.to_bytes(32, "big"), 0, 0)
    rows, logits, inputs, start = [], [], prompt.astype(np.int64), 0
    while start < POSITIONS:
        computed = await engine.forward(key, engine.slice, start, inputs)
        start += len(inputs)
        made = (await engine.logits(computed.rows[-1:])).rows
        rows.append(computed.rows[-1:])
        logits.append(made)
        gumbel = noise(Hash32(number.to_bytes(32, "big")), start, made.shape[1])
        inputs = np.array([int(np.argmax(made[0] + gumbel))], np.int64)
    await engine.forget(key)
    return np.concatenate(rows), np.concatenate(logits)


def _compare(folder: ModelFolder, dtype: Dtype, rows: Numbers, logits: Numbers, temperature: float) -> dict[str, Any]:
    """What is told of a text: by how much the best rival of each honest choice is ahead, as a share of the slack;
    whether another choice was the exact one; and the same of the second-best token where a node had taken it."""
    exact, size = _products(folder, dtype, rows)
    slack = slack_of(exact, size, rows.shape[1], int(dtype))
    found = {"positions": len(rows), "pairs": 0, "most": 0.0, "convicted": 0, "others": 0, "caught": 0}
    for at, row in enumerate(logits):
        gumbel = temperature * noise(Hash32(b"\x07" * 32), at, len(row))
        honest, score = int(np.argmax(row + gumbel)), exact[at] + gumbel
        best = np.argpartition(-score, 1)[:2]
        second = int(best[np.argmin(score[best])])
        share, rival = _share(score, slack[at], honest)
        found["pairs"] += len(row) - 1
        found["most"] = max(found["most"], share)
        found["others"] += int(honest != int(np.argmax(score)))
        found["caught"] += int(_share(score, slack[at], second)[0] > 1)
        if share > NEAR:
            ahead = float(gumbel[rival] - gumbel[honest])
            found["convicted"] += _convicts(folder, dtype, rows[at], honest, rival, ahead)
    return found


def _products(folder: ModelFolder, dtype: Dtype, rows: Numbers) -> tuple[Numbers, Numbers]:
    states = widen(rows, dtype).astype(np.float64)
    exact, size = [], []
    for _, part in head_numbers(find_head(folder, HEAD), int(dtype)):
        wide = part.astype(np.float64)
        exact.append(states @ wide.T)
        size.append(np.abs(states) @ np.abs(wide).T)
    return np.concatenate(exact, axis=1), np.concatenate(size, axis=1)


def _share(score: Numbers, slack: Numbers, token: int) -> tuple[float, int]:
    """How much of the slack the best rival uses, and which it is."""
    shares = (score - score[token]) / (slack + slack[token])
    shares[token] = -np.inf
    rival = int(np.argmax(shares))
    return max(float(shares[rival]), 0.0), rival


def _convicts(folder: ModelFolder, dtype: Dtype, row: Numbers, token: int, rival: int, noise_ahead: float) -> int:  # noqa: PLR0917
    """Whether the contract's own integers convict, as 0 or 1."""
    tensor = find_head(folder, HEAD)
    weight = NumberFormat.FLOAT32 if tensor.dtype == "F32" else NumberFormat.BFLOAT16
    state = NumberFormat.FLOAT32 if dtype is Dtype.FLOAT32 else NumberFormat.BFLOAT16
    pair = (bytes(read_rows(tensor, token, token + 1)), bytes(read_rows(tensor, rival, rival + 1)))
    data, rounded = row.tobytes(), dtype is Dtype.BFLOAT16
    unit = unit_bits(data, state, pair, weight)
    found = exact_logits(data, state, pair, weight, rounded=rounded, unit=unit)
    ahead = found.others - found.own + int(noise_ahead * 2.0**unit)
    return int(ahead > found.slack(rounded=rounded) + (1 << unit - LEAST_SLACK_BITS))


def _told(dtype: Dtype, texts: Sequence[dict[str, Any]]) -> list[Figure]:
    name, positions = dtype.name.lower(), sum(one["positions"] for one in texts)
    pairs = sum(one["pairs"] for one in texts)
    return [
        Figure(f"honest tokens convicted, {name}", sum(one["convicted"] for one in texts), "tokens", reach=0,
               note=f"{positions:,} positions, {pairs:,} pairs; at 95 %: fewer than {3 / max(positions, 1):.3%}"),
        Figure(f"the most of the slack that an honest token used, {name}", max(one["most"] for one in texts), "of 1"),
        Figure(f"honest tokens that are not the exact choice, {name}",
               sum(one["others"] for one in texts) / positions, "of 1", note="a margin of zero would convict these"),
        Figure(f"second-best tokens convicted, {name}", sum(one["caught"] for one in texts) / positions, "of 1"),
    ]  # fmt: skip
