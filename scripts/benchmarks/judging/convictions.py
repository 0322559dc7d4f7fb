"""How many checked tasks it takes until a cheat is found out, from what was found on recorded ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.judging.runs import Arrays
from troth.protocol.findings import HONEST_LOST, HONEST_RATIO, LOST_LOGITS, MEAN_RATIO, Kind, TaskFinding, of_text
from troth.protocol.foresight import FORESEEN
from troth.protocol.scores import NOISE_FACTOR, mean_ratio
from troth.protocol.sequential import NOTHING
from troth.protocol.straying import Straying
from troth.protocol.tokens import Sampling

DRAWS = 200
MOST_TASKS = 1_000
WITHIN = (1, 10, 32, MOST_TASKS)
"""Tasks for which is said how many of the draws had found the node out."""


@dataclass(frozen=True, slots=True)
class Task:
    """A checked task: whether it is refused by itself, else what it says."""

    refused: bool
    findings: tuple[TaskFinding | None, ...]


@dataclass(frozen=True, slots=True)
class Conviction:
    """Tasks until found out: the median of the draws, what 95 % stay below, and the shares found out WITHIN."""

    median: float
    most: float
    within: tuple[float, ...]

    @property
    def share(self) -> float:
        """Found out at all."""
        return self.within[-1]


def text_findings(dtype: int, scores: Arrays, name: str, samplings: Sequence[Sampling]) -> list[TaskFinding | None]:
    """What each recorded text of a lie or a way says, as a verifier finds it; scores are `TokenScorer`'s. A lie about
    tokens stands over honest rows."""
    if dtype:
        rows = zip(
            samplings,
            unforeseen(scores["surprise"]),
            scores[f"first/{name}"].astype(float),
            scores["lost"],
            scores.get(f"rho/{name}", scores["rho/decode"]),
            strict=True,
        )
        return [
            of_text(sampling, lost=float(lost[late].sum()), own=float(own[late].sum()), noise=mean_ratio(ratios[late]))
            if late.any()
            else None
            for sampling, late, lost, own, ratios in rows
        ]
    kindest = scores[f"kindest/{name}"]
    told = np.where(kindest > NOISE_FACTOR * scores["apart"], kindest, 0.0)
    return [TaskFinding(Kind.TOKENS, float(row.max() > LOST_LOGITS), HONEST_LOST) for row in told]


def unforeseen(surprise: NDArray[Any]) -> NDArray[np.bool_]:
    """Which tokens count in the evidence, prompts x tokens, by the surprise of each (`foresight`)."""
    late: NDArray[np.bool_] = np.cumsum(surprise, axis=1) - surprise >= FORESEEN
    return late


def state_findings(means: Sequence[float], strays: NDArray[Any]) -> list[TaskFinding | None]:
    """What each recorded trace in bfloat16 says, by its mean noise ratio and how far its tokens stray (prompts x
    tokens)."""
    found = [mean > MEAN_RATIO or Straying(float(row.max())).counts for mean, row in zip(means, strays, strict=True)]
    return [TaskFinding(Kind.STATES, float(one), HONEST_RATIO) for one in found]


@dataclass(frozen=True, slots=True)
class Trace:
    """What is known of a way or a lie, prompt by prompt: whether the task is refused, and the mean noise ratio.

    ``bent``: its rows are bent to choose its tokens, so that none strays.
    """

    name: str
    refused: Sequence[bool]
    ratios: Sequence[float]
    bent: bool = False

    def tasks(self, dtype: int, scores: Arrays, turn: Sequence[Sampling]) -> Iterator[Task]:
        """Its tasks under one noise."""
        strays = scores[f"strays/{self.name}"] * (not self.bent)
        beyond = scores[f"beyond/{self.name}"].any(axis=1) & (not self.bent)
        states = state_findings(self.ratios, strays) if dtype else [None] * len(strays)
        for prompt, text in enumerate(text_findings(dtype, scores, self.name, turn)):
            yield Task(self.refused[prompt] or bool(beyond[prompt]), (text, states[prompt]))


def convicted(tasks: Sequence[Task], seed: int) -> Conviction:
    """Draw tasks, each with all its findings, until one is refused or a test is decided."""
    draw = np.random.default_rng(seed)
    needed = np.array([_until(tasks, draw) for _ in range(DRAWS)])
    within = tuple(float((needed <= most).mean()) for most in WITHIN)
    return Conviction(float(np.median(needed)), float(np.quantile(needed, 0.95)), within)


def _until(tasks: Sequence[Task], draw: np.random.Generator) -> int:
    evidence = dict.fromkeys(Kind, NOTHING)
    for number in range(1, MOST_TASKS + 1):
        task = tasks[int(draw.integers(len(tasks)))]
        if task.refused:
            return number
        for finding in task.findings:
            if finding is None:
                continue
            evidence[finding.test] = evidence[finding.test].after(finding.value, finding.honest)
            if not evidence[finding.test].accepted:
                return number
    return MOST_TASKS + 1
