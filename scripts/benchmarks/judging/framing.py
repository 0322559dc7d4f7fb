"""A client that wants an honest bfloat16 node suspected: it looks for prompts on which that node's kernels round a row
otherwise than its verifiers' do, and asks for what follows them again and again.

Looking is cheap: one pass over a prompt by both engines, and noise that it draws itself. What it finds is then ordered
with noise that nobody chose, once for one token and once for a text, along the node's own kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.judging.convictions import MOST_TASKS, Conviction, Task, convicted, text_findings
from benchmarks.judging.corpus import SEED, Group
from benchmarks.judging.engines import engines
from benchmarks.judging.recording import Recorder
from benchmarks.judging.runs import Runner
from benchmarks.judging.scoring import TokenScorer, repeated_seed
from benchmarks.judging.ways import Way
from troth.node.calibration.stack import Stack
from troth.protocol.findings import HONEST_SHARE, LEAST_LOST, Kind, TaskFinding
from troth.protocol.tokens import Sampling
from troth.protocol.types import Segment

LOOKED_AT, AT_ONCE, LENGTHS = 480, 48, (3, 6, 12, 24)
"""Prompts of each length that are looked at, drawn at random, and how many are ordered of all."""
ORDERED = 24
"""Prompts that are ordered, of one length."""
WRITTEN, REPEATS = 48, 4
"""Tokens of a text, and texts of a prompt."""
LIKELY, DRAWN = 400, 200
"""Tokens of a row that the client draws noise for, and how often."""
SAMPLING = Sampling(1.0, 1.0)
NODES = tuple(way for way in engines(1, 1) if way.name in {"fused", "sums in halves", "flash attention"})


@dataclass(frozen=True, slots=True)
class Seen:
    """A prompt, how often its next token says something, and the node's part of what is lost then."""

    prompt: NDArray[np.int64]
    says: float
    part: float

    @property
    def worth(self) -> float:
        """What an order of one token brings whoever wants the node suspected."""
        return self.says * (self.part - HONEST_SHARE)


def framing_figures(recorder: Recorder) -> Iterator[Figure]:
    """Of each kind of kernels, a figure for single tokens as they are, and one for texts by the rule."""
    runner = Runner(recorder.folder, recorder.shelf)
    for way in NODES:
        best = _looked(runner, recorder, way)
        note = f"of {LOOKED_AT * len(LENGTHS)} prompts the worst by looking; in {best[0].says:.0%} of orders"
        yield Figure(f"node's part of loss, one token foreseen: {way.name}", best[0].part, "", note=note)
        findings = _ordered(runner, recorder, way, best)
        values = [one.value for one in findings if one is not None]
        error = np.std(values) / np.sqrt(len(values))
        suspected = _suspected(findings)
        note = f"{len(values)} texts of {len(findings)} say something, standard error {error:.3f}; {_said(suspected)}"
        name = f"node's part of loss, texts of the {ORDERED} worst prompts: {way.name}"
        yield Figure(name, float(np.mean(values)), "", reach=HONEST_SHARE, note=note)


def _said(found: Conviction) -> str:
    return f"suspected within {MOST_TASKS} orders by {found.share:.0%} of verifiers"


def _suspected(findings: Sequence[TaskFinding | None]) -> Conviction:
    return convicted([Task(refused=False, findings=(one,)) for one in findings], SEED)


def _looked(runner: Runner, recorder: Recorder, way: Way) -> list[Seen]:
    """The worst prompts of one length, the worst first."""
    draw, seen = np.random.default_rng([SEED, len(way.name)]), list[Seen]()
    low, high = recorder.heads
    assert high is not None, "of a bfloat16 class"
    node, size = runner.stack(way), int(recorder.folder.config["vocab_size"])
    for length in LENGTHS:
        for _ in range(0, LOOKED_AT, AT_ONCE):
            prompts = draw.integers(size, size=(AT_ONCE, length))
            rows = [_next(stack, head, prompts) for stack, head in ((high, high), (low, low), (node, low))]
            seen += [Seen(prompt, *_share(*logits, draw)) for prompt, *logits in zip(prompts, *rows, strict=True)]
    worst = max(seen, key=lambda one: one.worth)
    alike = [one for one in seen if len(one.prompt) == len(worst.prompt)]
    return sorted(alike, key=lambda one: -one.worth)[:ORDERED]


def _next(stack: Stack, head: Stack, prompts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Logits after each prompt."""
    with torch.inference_mode():
        states = stack.forward(stack.embed(torch.from_numpy(prompts)), Segment(0, stack.total), stack.cache(), 0)
        logits: NDArray[np.float32] = head.logits(states[:, -1].to(head.dtype)).float().numpy()
    return logits


def _share(
    reference: NDArray[np.float32], own: NDArray[np.float32], node: NDArray[np.float32], draw: np.random.Generator
) -> tuple[float, float]:
    """How often the next token says something, and the node's part of what is lost then."""
    likely = np.argsort(-reference)[:LIKELY]
    noise = draw.gumbel(size=(DRAWN, len(likely)))
    scores, rows = reference[likely] + noise, np.arange(DRAWN)
    chosen = [(one[likely] + noise).argmax(axis=1) for one in (node, own)]
    theirs, mine = (scores.max(axis=1) - scores[rows, token] for token in chosen)
    told = theirs + mine >= LEAST_LOST
    return float(told.mean()), float((theirs[told] / (theirs + mine)[told]).mean()) if told.any() else 0.0


def _ordered(runner: Runner, recorder: Recorder, way: Way, best: Sequence[Seen]) -> list[TaskFinding | None]:
    """What texts of these prompts say of the node."""
    found: list[TaskFinding | None] = []
    for repeat in range(REPEATS):
        prompts, turn = np.stack([one.prompt for one in best]), (SAMPLING,) * len(best)
        group = Group(f"framing {way.name} {repeat}", prompts, turn, WRITTEN, tuple(map(str, range(len(best)))))
        runner.prepare(group)
        runner.follow(group, way)
        scorer = TokenScorer(recorder.shelf, group, recorder.heads, [way.name])
        scores = scorer.score([way.name], lambda _: SAMPLING, lambda one, group=group: repeated_seed(group, one, 1))  # type: ignore[misc]
        found += text_findings(recorder.dtype, scores, way.name, turn)
    assert all(one is None or one.test is Kind.TOKENS for one in found)
    return found
