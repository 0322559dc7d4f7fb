"""What an inferencer claims under a condition: a text and the states of every position, for a bucket of prompts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from troth.node.calibration import tampering
from troth.node.calibration.conditions import Condition
from troth.node.calibration.prompts import Bucket
from troth.node.calibration.stack import Stack
from troth.node.engine.torch_engine import from_words, to_words
from troth.protocol.tokens import Sampling, choose, noise
from troth.protocol.types import Hash32, Segment

OTHER_PROMPT_TOKENS = 8
"""How many tokens of the prompt an injected system prompt replaces."""
StackFactory = Callable[[str], Stack]


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What is run: ``segments`` of the model, ``tokens`` per text, ``dtype`` 0 float32 or 1 bfloat16."""

    segments: tuple[Segment, ...]
    tokens: int
    dtype: int


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """``text``: sequences x tokens. ``rows``: per segment, sequences x positions x hidden size, in a trace's words."""

    text: NDArray[np.int64]
    rows: tuple[NDArray[Any], ...]


def seed_of(prompt: int, kind: str = "seed") -> Hash32:
    """The public noise seed of a prompt."""
    return Hash32(hashlib.sha256(f"troth calibration {kind} {prompt}".encode()).digest())


def generate(make: StackFactory, bucket: Bucket, condition: Condition, plan: CalibrationPlan) -> ClaimedRun:
    """Run a condition's inferencer over a bucket; `make` loads the registered model with an attention backend."""
    stack = make(condition.attention)
    if condition.text == "forged":
        liar = make("sdpa")
        tampering.quantise_weights(liar, 4)
        tampering.skip_layers(liar, frozenset({liar.total // 2}))
        text, _ = decode(liar, bucket.tokens, bucket, condition, plan)
        return ClaimedRun(text, prefill(stack, bucket.tokens, text, plan))
    if condition.change is not None:
        condition.change(stack)
    text, rows = _in_batches(stack, bucket, condition, plan)
    if condition.noise:
        rows = tuple(_noisy(part, condition.noise, plan.dtype) for part in rows)
    return ClaimedRun(text, rows)


def _in_batches(
    stack: Stack, bucket: Bucket, condition: Condition, plan: CalibrationPlan
) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...]]:
    size = condition.batch or len(bucket.tokens)
    prompts = other_prompt(bucket.tokens) if condition.text == "other prompt" else bucket.tokens
    parts = []
    for start in range(0, len(prompts), size):
        part = replace(
            bucket, first=bucket.first + start, tokens=prompts[start : start + size],
            samplings=bucket.samplings[start : start + size],
        )  # fmt: skip
        parts.append(decode(stack, part.tokens, part, condition, plan))
    text = np.concatenate([text for text, _ in parts])
    return text, tuple(np.concatenate(rows) for rows in zip(*(rows for _, rows in parts), strict=True))


def other_prompt(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """The prompts with some of their first tokens in another order: what an injected instruction does to states."""
    changed = tokens.copy()
    changed[:, 1 : 1 + OTHER_PROMPT_TOKENS] = changed[:, 1 : 1 + OTHER_PROMPT_TOKENS][:, ::-1]
    return changed


def decode(
    stack: Stack, prompts: NDArray[np.int64], bucket: Bucket, condition: Condition, plan: CalibrationPlan
) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...]]:
    """Prefill and decode `plan.tokens` tokens; end tokens do not end a text here, so that all have one length."""
    chooser = _Chooser(bucket, condition, len(prompts[0]))
    cache = stack.cache()
    collected: list[list[NDArray[Any]]] = [[] for _ in plan.segments]
    text: list[NDArray[np.int64]] = []
    for start, tokens in _steps(prompts, condition.chunk, text, plan.tokens):
        states = stack.embed(torch.from_numpy(tokens))
        for index, segment in enumerate(plan.segments):
            states = stack.forward(states, segment, cache, start)
            collected[index].append(words(states, plan.dtype))
        if start + tokens.shape[1] >= prompts.shape[1]:
            text.append(chooser.choose(stack.logits(states[:, -1]).numpy(), len(text)))
    return np.stack(text, axis=1), tuple(np.concatenate(part, axis=1) for part in collected)


def _steps(
    prompts: NDArray[np.int64], chunk: int | None, text: list[NDArray[np.int64]], count: int
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The messages of a run: first position, and tokens (sequences x positions); the last token is never run."""
    length = prompts.shape[1]
    size = chunk or length
    for start in range(0, length, size):
        yield start, prompts[:, start : start + size]
    for position in range(length, length + count - 1):
        yield position, text[-1][:, None]


def prefill(
    stack: Stack, prompts: NDArray[np.int64], text: NDArray[np.int64], plan: CalibrationPlan
) -> tuple[NDArray[Any], ...]:
    """The states of prompt and text in one pass."""
    states = stack.embed(torch.from_numpy(np.concatenate([prompts, text[:, :-1]], axis=1)))
    rows = []
    for segment in plan.segments:
        states = stack.forward(states, segment)
        rows.append(words(states, plan.dtype))
    return tuple(rows)


def words(states: torch.Tensor, dtype: int) -> NDArray[Any]:
    """Batched states in a trace's words, copied."""
    return np.array(to_words(states.contiguous(), dtype))


def _noisy(rows: NDArray[Any], share: float, dtype: int) -> NDArray[Any]:
    generator = torch.Generator().manual_seed(20260102)
    states = from_words(rows, dtype)
    noisy = states.float() * (1 + share * torch.randn(states.shape, generator=generator))
    return words(noisy.to(states.dtype), dtype)


class _Chooser:
    """Chooses tokens as the condition says: by the request, or by the lie."""

    def __init__(self, bucket: Bucket, condition: Condition, prompt_length: int) -> None:
        kind = "other" if condition.text == "wrong seed" else "seed"
        self._seeds = [seed_of(bucket.first + index, kind) for index in range(len(bucket.tokens))]
        self._samplings = [_lied(sampling, condition.text) for sampling in bucket.samplings]
        self._first = prompt_length - 1

    def choose(self, logits: NDArray[np.float32], index: int) -> NDArray[np.int64]:
        """One token for each sequence."""
        chosen = []
        for row, seed, sampling in zip(logits, self._seeds, self._samplings, strict=True):
            gumbel = noise(seed, self._first + index, len(row)) if sampling.temperature > 0 else None
            chosen.append(choose(row, sampling, gumbel))
        return np.array(chosen, dtype=np.int64)


def _lied(sampling: Sampling, text: str) -> Sampling:
    if text == "greedy":
        return Sampling(0.0, 1.0)
    return Sampling(sampling.temperature / 2, sampling.top_p) if text == "cool" else sampling
