"""What a verifier finds of every way and text: by the product's own functions, and kept for better statistics.

States are judged by `judge_states` with the class that ships. Of tokens is kept what they lose at both looks, to the
reference (float32), the verifier's own prefill and its second run; with what its own choices lose, and the rows' noise;
and how far they stray from the rows that are claimed with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.judging.corpus import Group
from benchmarks.judging.engines import engines
from benchmarks.judging.runs import SHAKEN, STRONGLY, Arrays, Shelf
from benchmarks.judging.ways import HONEST
from troth.node.calibration.stack import Stack
from troth.node.engine.torch_engine import from_words
from troth.protocol.doubts import apart, reach
from troth.protocol.foresight import surprise
from troth.protocol.hashing import keccak256
from troth.protocol.margins import Losses, loss
from troth.protocol.scores import rho
from troth.protocol.straying import FAITHFUL, Straying, kinder, strays
from troth.protocol.tensors import Dtype, widen
from troth.protocol.tokens import Sampling, choose, noise
from troth.protocol.types import Hash32
from troth.protocol.unsteady import BY_HALF

Logits = NDArray[np.float32]
Numbers = NDArray[np.float64]
Heads = tuple[Stack, Stack | None]
"""A verifier's model, and the same widened to float32 in bfloat16."""
Bias = tuple[NDArray[np.intp], Logits]
"""A token of every row, and what a client adds to its logit."""
Claimed = Callable[[int, Bias | None, int], tuple[Logits, ...]]
"""Logits of a prompt's row by a verifier's heads."""
BIASED, BIAS = 50, 0.2
LOGIT_ROWS = 128
"""Rows whose logits are computed at a time: the head is read once for all of them."""
TEXTS = (
    "text by int8", "text by int8 g32", "lenient 0.1", "lenient 0.2", "lenient 0.5", "biased", "0.98 T", "0.95 T",
    "0.5 T", "no nucleus",
)  # fmt: skip
"""Lies about tokens over honest states."""
HONEST_WAYS = frozenset({"decode", *(way.name for way in (*HONEST, *engines(0), *engines(1, 0), *engines(1, 1)))})


def _wide(rows: NDArray[Any], dtype: Dtype) -> NDArray[np.float32]:
    return rows if rows.dtype == np.float32 else np.stack([widen(one, dtype) for one in rows])


@dataclass(frozen=True, slots=True)
class Row:
    """One position: logits of every run, noise, and what is asked for.

    ``claimed``: what a verifier makes of the rows that are claimed, by both heads, once it is asked.
    """

    logits: dict[str, Logits]
    gumbel: Numbers | None
    sampling: Sampling
    frequent: NDArray[np.int64]
    claimed: dict[str, Callable[[], tuple[Logits, ...]]] = field(default_factory=dict)
    chosen: dict[str, int] = field(default_factory=dict)

    def choice(self, name: str) -> int:
        """What a way or a lie would write here."""
        if name not in self.chosen:
            self.chosen[name] = self._choice(name)
        return self.chosen[name]

    def _choice(self, name: str) -> int:
        if name in {"text by int8", "text by int8 g32"}:
            return self._choose(self.logits[name.removeprefix("text by ") + " weights"])
        if name.startswith("lenient"):
            offered = self._choose(self.logits["int8 weights"])
            lost = loss(self.logits["decode"], offered, self.sampling, self.gumbel)[0]
            return offered if lost <= float(name.split()[1]) else self._choose(self.logits["decode"])
        if name == "biased":
            raised = self.logits["decode"].copy()
            raised[self.frequent] += BIAS
            return self._choose(raised)
        if name == "no nucleus":
            return choose(self.logits["decode"], replace(self.sampling, top_p=1.0), self.gumbel)
        if name.endswith(" T"):
            cooler = Sampling(self.sampling.temperature * float(name.split(maxsplit=1)[0]), self.sampling.top_p)
            return choose(self.logits["decode"], cooler, self.gumbel)
        return self._choose(self.logits[name])

    def _choose(self, logits: Logits) -> int:
        return choose(logits, self.sampling, self.gumbel)

    def lost(self, judge: str, token: int) -> Losses:
        """What a token loses by a run's logits."""
        return Losses(*map(np.array, loss(self.logits[judge], token, self.sampling, self.gumbel)))

    def strays(self, name: str, token: int, seed: Hash32, position: int) -> Straying:
        """How far a token of a way or a lie strays from the rows that are claimed with it: a lie's are honest."""
        if token == self.choice("own"):
            return FAITHFUL
        heads = self.claimed["decode" if name in TEXTS else name]()
        told = partial(strays, dtype=Dtype(len(heads) - 1), seed=seed, positions=[position])
        return reduce(kinder, [told(one[None], [token], self.sampling)[0] for one in heads])

    def apart(self, first: str, second: str) -> float:
        """How far two runs' logits are apart, as the product measures it."""
        return float(apart(self.logits[first][None], self.logits[second][None])[0])


class TokenScorer:
    """Margins of what ways and lies would have written along the honest texts of a group."""

    def __init__(self, shelf: Shelf, group: Group, heads: Heads, ways: Sequence[str]) -> None:
        self._shelf, self._group, self._heads, self._ways = shelf, group, heads, ways
        self._third = (SHAKEN[1], STRONGLY[1]) if shelf.dtype else ((), ())
        runs = {*ways, "decode", "own", "again", *self._third[0], *self._third[1]}
        self._runs = {name: shelf.read(group, name)["rows-1"] for name in runs}
        if shelf.dtype:
            self._runs["high"] = shelf.read(group, "high")["rows-1"]
        self._text = shelf.read(group, "decode")["text"]
        self._step = max(1, LOGIT_ROWS // self._text.shape[1])
        values, counts = np.unique(self._text, return_counts=True)
        self._frequent = values[np.argsort(-counts)][:BIASED]

    def score(
        self,
        names: Sequence[str],
        samplings: Callable[[int], Sampling],
        seed: Callable[[int], Hash32],
        levelled: Callable[[int], bool] = lambda prompt: False,
    ) -> Arrays:
        """Arrays of prompts x tokens: ``token/NAME``; what it loses, ``first/NAME`` at the first look by the reference,
        ``kindest/NAME`` at the second, ``third/NAME`` at the third; ``strays/NAME`` from the claimed rows,
        ``beyond/NAME`` further than machines; ``lost``: what own choices lose at the first; ``surprise`` of the
        reference's choice; ``apart`` and ``apart at third``: noise of the rows; in bfloat16 ``rho/NAME`` of a way's.

        ``levelled``: whether a prompt's client draws the two likeliest tokens of every row level, by a bias.
        """
        parts = [self.part(start, names, samplings, seed, levelled) for start in self.starts()]
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def starts(self) -> range:
        """The first prompts of the parts that `score` consists of."""
        return range(0, len(self._text), self._step)

    def part(
        self,
        start: int,
        names: Sequence[str],
        samplings: Callable[[int], Sampling],
        seed: Callable[[int], Hash32],
        levelled: Callable[[int], bool] = lambda prompt: False,
    ) -> Arrays:
        """What `score` finds of the prompts from one of `starts` on to the next."""
        found: dict[str, list[list[float]]] = {}
        block = {name: self._logits(name, rows[start : start + self._step]) for name, rows in self._runs.items()}
        seen = {name: self._claimed(name, start, block[name]) for name in {*self._ways, "decode"}}
        for prompt in range(start, min(start + self._step, len(self._text))):
            logits = {name: one[prompt - start] for name, one in block.items()}
            bias = _levelling(logits["own"]) if levelled(prompt) else None
            if bias is not None:
                for one in logits.values():
                    one[np.arange(len(one)), bias[0]] += bias[1]
            claimed = {name: partial(told, prompt - start, bias) for name, told in seen.items()}
            values = self._prompt(logits, claimed, names, samplings(prompt), seed(prompt))
            for key, one in (values | self._rho(prompt)).items():
                found.setdefault(key, []).append(one)
        return {key: np.array(values, np.float32) for key, values in found.items()}

    def _rho(self, prompt: int) -> dict[str, list[float]]:
        """Of every way's rows that choose a prompt's text."""
        first = self._group.tokens.shape[1] - 1
        if not self._shelf.dtype:
            return {}
        high = self._runs["high"][prompt, first:]
        own = widen(self._runs["own"][prompt, first:], Dtype.BFLOAT16)
        ways = {f"rho/{name}": self._runs[name][prompt, first:] for name in {*self._ways, "decode"}}
        return {key: rho(widen(rows, Dtype.BFLOAT16), [own], high).tolist() for key, rows in ways.items()}

    def _claimed(self, name: str, start: int, known: Logits) -> Claimed:
        """Logits of claimed rows as a verifier computes them, in bfloat16 by both heads; computed when asked for.

        Honest rows go through the head one by one, so that its routines differ from the node's as they may.
        """
        rows, alone = self._runs[name][start : start + self._step], name in HONEST_WAYS
        untouched = None if alone else known.copy()
        first = self._group.tokens.shape[1] - 1

        @cache
        def wide() -> Logits:
            return self._logits("high", _wide(rows, Dtype.BFLOAT16))

        def told(prompt: int, bias: Bias | None, index: int) -> tuple[Logits, ...]:
            if untouched is None:
                row = rows[prompt, first + index : first + index + 1]
                heads = [self._head(name, row)[0]]
                if self._shelf.dtype:
                    heads.append(self._head("high", _wide(row[None], Dtype.BFLOAT16)[0])[0])
            else:
                heads = [untouched[prompt, index].copy()]
                if self._shelf.dtype:
                    heads.append(wide()[prompt, index].copy())
            if bias is not None:
                for one in heads:
                    one[bias[0][index]] += bias[1][index]
            return tuple(heads)

        return told

    def _logits(self, name: str, rows: NDArray[Any]) -> Logits:
        """Logits of every row of the text of prompts x rows x columns."""
        states = rows[:, self._group.tokens.shape[1] - 1 :]
        logits = self._head(name, states.reshape(-1, states.shape[-1]))
        return logits.reshape(*states.shape[:2], -1)

    def _head(self, name: str, rows: NDArray[Any]) -> Logits:
        """What a verifier's head makes of rows, all at once; ``name``: "high" is the one that rounds nothing."""
        low, high = self._heads
        stack = high if name == "high" and high is not None else low
        states = from_words(rows, 0 if rows.dtype == np.float32 else 1)
        with torch.inference_mode():
            made: Logits = stack.logits(states.to(stack.dtype)).numpy()
        return made

    def _prompt(
        self,
        logits: dict[str, Logits],
        claimed: dict[str, Callable[[int], tuple[Logits, ...]]],
        names: Sequence[str],
        sampling: Sampling,
        seed: Hash32,
    ) -> dict[str, list[float]]:
        line: dict[str, list[float]] = {}
        reference = "high" if self._shelf.dtype else "own"
        first = self._group.tokens.shape[1] - 1
        for index in range(self._text.shape[1]):
            gumbel = noise(seed, first + index, logits["own"].shape[1]) if sampling.temperature > 0 else None
            heads = {name: partial(told, index) for name, told in claimed.items()}
            row = Row({name: one[index] for name, one in logits.items()}, gumbel, sampling, self._frequent, heads)
            for key, value in _values(row, names, (reference, *self._third), seed, first + index).items():
                line.setdefault(key, []).append(value)
        return line


def _levelling(own: Logits) -> Bias:
    """A bias that raises the second likeliest token of every row to the likeliest's level, by the verifier's run."""
    place = np.arange(len(own))
    second, first = np.argpartition(own, -2, axis=1)[:, -2:].T
    return second, own[place, first] - own[place, second]


def _values(
    row: Row, names: Sequence[str], further: tuple[str, Sequence[str], Sequence[str]], seed: Hash32, position: int
) -> dict[str, float]:
    """Of one row; ``further``: the reference, and the runs of a third look, lightly and strongly shaken."""
    reference, shaken, strongly = further
    judges, known = {"own", "again", reference}, dict[int, tuple[float, ...]]()
    beside = 0.0 if reference == "own" else row.apart("own", reference)
    noise = max(beside, row.apart("again", reference))
    shakes = (row.apart(one, reference) * counts for runs, counts in ((shaken, 1), (strongly, BY_HALF)) for one in runs)
    unsteady = max([noise, *shakes])
    near, *reaches = (float(reach(np.array(one))) for one in (beside, noise, unsteady))

    def judged(token: int) -> tuple[float, ...]:
        if token not in known:
            lost = {judge: row.lost(judge, token) for judge in judges}
            kindest = [min(float(one.counted(reaches[0])) for one in lost.values())]
            if kindest[0] and shaken:
                lost |= {judge: row.lost(judge, token) for judge in shaken}
                kindest.append(min(float(one.counted(reaches[1])) for one in lost.values()))
            known[token] = float(lost[reference].counted(near)), kindest[0], kindest[-1]
        return known[token]

    values = {"lost": judged(row.choice("own"))[0], "apart": noise, "apart at third": unsteady}
    values["surprise"] = surprise(row.logits[reference], row.choice(reference), row.sampling)
    for name in names:
        token = row.choice(name)
        first, kindest, third = judged(token)
        strays = row.strays(name, token, seed, position)
        values |= {f"token/{name}": token, f"first/{name}": first, f"kindest/{name}": kindest, f"third/{name}": third}
        values |= {f"strays/{name}": strays.worst, f"beyond/{name}": strays.beyond}
    return values


def repeated_seed(group: Group, prompt: int, repeat: int) -> Hash32:
    """Another seed of the same text: texts of one prompt under other noise."""
    return Hash32(keccak256(group.seed(prompt) + repeat.to_bytes(4, "big")))
