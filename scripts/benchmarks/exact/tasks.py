"""The seeded workload: prompts of mixed lengths, a third of which share a beginning, with mixed sampling."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from troth.protocol.request import Request
from troth.protocol.types import ZERO_HASH, Hash32

SEED = 20260111
SHARED = 5
SAMPLINGS = ((0, 1_000_000), (700_000, 900_000), (1_000_000, 1_000_000), (700_000, 1_000_000))
"""Temperature and top_p, in millionths."""
WAVES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Task:
    """One request; `task_id` names the trace, `seed` its noise."""

    number: int
    request: Request

    @property
    def task_id(self) -> Hash32:
        """A made-up task id."""
        return Hash32(hashlib.sha256(b"exact task %d" % self.number).digest())

    @property
    def seed(self) -> Hash32:
        """The public seed of its noise."""
        return Hash32(hashlib.sha256(b"exact seed %d" % self.number).digest())


def tasks(count: int, vocabulary: int, end_token: int) -> list[Task]:
    """So many tasks: 4 to 600 prompt tokens, 2 to 32 generated ones."""
    draw = np.random.default_rng(SEED)
    shared = [draw.integers(100, vocabulary, int(size)).tolist() for size in draw.integers(64, 400, SHARED)]
    made = []
    for number in range(count):
        prompt = draw.integers(100, vocabulary, int(np.exp(draw.uniform(np.log(4), np.log(300))))).tolist()
        if draw.random() < 0.35:
            prompt = shared[int(draw.integers(SHARED))] + prompt[:200]
        temperature, top_p = SAMPLINGS[number % len(SAMPLINGS)]
        made.append(
            Task(
                number,
                Request(
                    execution_class=ZERO_HASH,
                    prompt_tokens=tuple(prompt),
                    max_tokens=int(draw.integers(2, 33)),
                    temperature_millionths=temperature,
                    top_p_millionths=top_p,
                    end_tokens=(end_token,),
                ),
            )
        )
    return made


def waves(work: list[Task]) -> list[list[Task]]:
    """The tasks in the order in which they are asked, those of one list at the same time."""
    parts, start, index = [], 0, 0
    while start < len(work):
        size = WAVES[index % len(WAVES)]
        parts.append(work[start : start + size])
        start, index = start + size, index + 1
    return parts
