"""Every id of a vocabulary as a prompt of one: prefilled first, then the worst and a sample of the others decoded.

A prompt of one position that asks for one token is a whole task of one row, and costs one position. In float32 who
serves many runs hundreds of them together, and a verifier few: other routines multiply their rows. In bfloat16 batches
have the same bits, and a row alone has others in one id of eight, so that a node computes each alone. Further runs are
taken, as in the product, of what the first look refuses or, by its mean, doubts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.judging.corpus import SEED, Group
from benchmarks.judging.hunt import PROMPTS, SAMPLINGS, Find, Hunt, read_finds, write_finds
from benchmarks.judging.runs import SHAKEN
from benchmarks.judging.scoring import Heads
from benchmarks.judging.verdicts import Rules, request_of
from troth.node.calibration.generating import words
from troth.node.calibration.stack import Stack
from troth.node.engine.shaking import Shake
from troth.node.engine.torch_engine import TORCH_DTYPES
from troth.node.models.folder import ModelFolder
from troth.node.models.thresholds import Thresholds
from troth.protocol.comparison import judge_states
from troth.protocol.doubts import first_look, judge_doubted_tokens, reach, rows_apart
from troth.protocol.findings import LOOKED_AT
from troth.protocol.margins import losses
from troth.protocol.tokens import TokenReport, choose, judge_tokens, noise
from troth.protocol.types import Segment

BLOCK = 512
"""Ids that are tried together, and kept together."""
SERVED = (256, 1)
"""Prompts that a node computes at a time, by dtype."""
VERIFIED, AGAIN = 16, 5
"""What a verifier computes at a time, and the same once more where it doubts."""
WORST, SAMPLED = 500, 500
"""Ids that are decoded afterwards."""
Logits = NDArray[np.float32]
Bias = tuple[int, np.float32]
"""A token, and what a client adds to its logit."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows after half the layers and after the last, prompts x columns each, and logits of the last."""

    rows: tuple[NDArray[Any], NDArray[Any]]
    logits: Logits

    def biased(self, bias: Bias | None) -> _Run:
        """With a client's bias in the logits."""
        if bias is not None:
            self.logits[0, bias[0]] += bias[1]
        return self


@dataclass(frozen=True, slots=True)
class _Runs:
    """A node's run of one prompt, its verifier's, and in bfloat16 the verifier's in float32."""

    node: _Run
    own: _Run
    exact: _Run | None

    def biased(self, bias: Bias | None) -> _Runs:
        """With a client's bias in all of them."""
        for one in (self.node, self.own, self.exact):
            if one is not None:
                one.biased(bias)
        return self


class EveryId:
    """The ids of one class in an order that is drawn; what was tried is kept in ``scratch``/ids-DTYPE.jsonl."""

    def __init__(self, folder: ModelFolder, scratch: Path, dtype: int, cuts: Thresholds, heads: Heads) -> None:
        self._dtype, self._cuts, self._heads = dtype, cuts, heads
        self._plain = Stack(folder, TORCH_DTYPES[dtype], attention="eager") if dtype else None
        self._hunt = Hunt(folder, scratch, dtype, cuts, heads)
        self._ids = np.random.default_rng(SEED).permutation(int(folder.config["vocab_size"]))
        self.path = scratch / f"ids-{dtype}.jsonl"
        self.decoded = scratch / f"ids-decoded-{dtype}.jsonl"

    def run(self, report: Callable[[str], None], most: int) -> tuple[list[Find], list[Find]]:
        """Everything that was not tried yet of so many ids: prefilled, then decoded."""
        known = read_finds(self.path)
        for start in range(len(known), min(len(self._ids), most), BLOCK):
            found = list(self._prefilled(start))
            write_finds(self.path, found)
            known += found
            report(_line("prefilled", known))
        later = read_finds(self.decoded)
        chosen = self._chosen(known)
        for start in range(len(later) * PROMPTS // self._hunt.size, len(chosen), PROMPTS):
            found = self._hunt.tried(chosen[start : start + PROMPTS, None], 1 << 32 | start)
            write_finds(self.decoded, found)
            later += found
            report(_line("decoded", later))
        return known, later

    def _chosen(self, known: list[Find]) -> NDArray[np.int64]:
        """The worst by their first look, and the first of the others in the order that was drawn."""
        order = sorted(range(len(known)), key=lambda index: -known[index].first)
        worst = set(order[:WORST])
        others = [index for index in range(len(known)) if index not in worst][:SAMPLED]
        return self._ids[[*order[:WORST], *others]].astype(np.int64)

    def _prefilled(self, start: int) -> Iterator[Find]:
        ids = self._ids[start : start + BLOCK, None]
        low, high = self._heads
        group = Group(f"every id {start}", ids, _turn(len(ids)), 1, tuple(map(str, ids[:, 0])))
        node, own = _computed(low, ids, SERVED[self._dtype], self._dtype), _computed(low, ids, VERIFIED, self._dtype)
        exact = None if high is None else _computed(high, ids, VERIFIED, 0)
        for index in range(len(ids)):
            runs = _Runs(*(None if one is None else _one(one, index) for one in (node, own, exact)))  # type: ignore[arg-type]
            bias = _bias_of(runs.own) if index // len(SAMPLINGS) % 2 else None
            yield self._judged(group, index, runs.biased(bias), bias)

    def _judged(self, group: Group, index: int, runs: _Runs, bias: Bias | None) -> Find:
        sampling, seed = group.samplings[index], group.seed(index)
        gumbel = noise(seed, 0, runs.node.logits.shape[1]) if sampling.temperature > 0 else None
        token = choose(runs.node.logits[0], sampling, gumbel)
        reference, beside = (runs.own, None) if runs.exact is None else (runs.exact, runs.own.logits)
        lost = first_look(reference.logits, [token], sampling, beside=beside, seed=seed, first_position=0)
        cut = self._cuts.margin_cut / 1e6
        text = judge_tokens(lost, [token], request_of(group, index), cut)
        states, doubted = self._states(runs)
        first = max(states, text.score / cut)
        second, told = first, True
        if first > 1 or doubted:
            same = np.repeat(group.tokens[index : index + 1], AGAIN, 0)
            again = _one(_computed(self._heads[0], same, AGAIN, self._dtype), 0).biased(bias)
            others = () if self._dtype else SHAKEN[0]
            further = [_one(_computed(self._heads[0], same[:1], 1, 0, shakes=True), 0) for _ in others]
            plain = None if self._plain is None else _one(_computed(self._plain, same[:1], 1, self._dtype), 0)
            states, _ = self._states(runs, [again, *further], plain)
            if not text.accepted:
                text = self._doubted(group, index, token, runs, again)
            second, told = max(states, text.score / cut if text.told else 0.0), text.told
        return Find("every id", (int(group.tokens[index, 0]),), sampling.temperature, sampling.top_p,
                    bias is not None, first, second, not told, text.score / cut)  # fmt: skip

    def _states(self, runs: _Runs, further: Sequence[_Run] = (), plain: _Run | None = None) -> tuple[float, bool]:
        """How many cuts away the worse of both traces is, and whether the mean of one is doubted."""
        rules, found = Rules(self._dtype, self._cuts.state_cut), []
        for place in (0, 1):
            high, others = runs.exact and runs.exact.rows[place], [one.rows[place] for one in further]
            otherwise = plain and plain.rows[place]
            claimed, own = runs.node.rows[place], runs.own.rows[place]
            found.append(judge_states(rules, claimed, own, high, *others, otherwise=otherwise))
        return max(one.cuts for one in found), any(one.mean > LOOKED_AT for one in found)

    def _doubted(self, group: Group, index: int, token: int, runs: _Runs, again: _Run) -> TokenReport:
        seen = [one.logits for one in (runs.own, again, runs.exact) if one is not None]
        sampling = group.samplings[index]
        apart = rows_apart(seen)
        lost = [losses(one, [token], sampling, seed=group.seed(index), first_position=0) for one in seen]
        by_judges = np.array([one.counted(reach(apart)) for one in lost])
        return judge_doubted_tokens(by_judges, apart, [token], request_of(group, index), self._cuts.margin_cut / 1e6)


def _turn(count: int) -> tuple[Any, ...]:
    return tuple(SAMPLINGS[index % len(SAMPLINGS)] for index in range(count))


def _line(what: str, found: list[Find]) -> str:
    worst = max(found, key=lambda one: one.second)
    refused = sum(one.second > 1 for one in found)
    return f"{len(found)} {what}, {refused} refused, worst {worst.second:.2f}: {worst.tokens}"


def _computed(stack: Stack, ids: NDArray[np.int64], batch: int, dtype: int, *, shakes: bool = False) -> _Run:
    """One position of each prompt, so many prompts at a time."""
    half, found = Segment(0, stack.total // 2), []
    rest = Segment(stack.total // 2, stack.total)
    with torch.inference_mode():
        for start in range(0, len(ids), batch):
            entering = stack.embed(torch.from_numpy(ids[start : start + batch]))
            middle = stack.forward(Shake()(entering) if shakes else entering, half, stack.cache())
            last = stack.forward(middle, rest, stack.cache())
            logits = stack.logits(last[:, 0]).numpy()
            found.append((words(middle, dtype)[:, 0], words(last, dtype)[:, 0], logits))
    middle_rows, last_rows, logits = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return _Run((middle_rows, last_rows), logits)


def _one(run: _Run, index: int) -> _Run:
    one = slice(index, index + 1)
    return _Run((run.rows[0][one], run.rows[1][one]), run.logits[one].copy())


def _bias_of(own: _Run) -> Bias:
    """The bias by which a client draws the two likeliest tokens level, by the verifier's own run."""
    second, first = np.argpartition(own.logits[0], -2)[-2:]
    return int(second), own.logits[0, first] - own.logits[0, second]
