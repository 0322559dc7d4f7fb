"""Verdicts over kept rows: by the first look alone, and with all of them, by the product's own functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.judging.corpus import Group
from benchmarks.judging.runs import OTHERWISE, SHAKEN, STRONGLY, Arrays, Shelf
from troth.node.models.thresholds import Thresholds
from troth.protocol.comparison import judge_states
from troth.protocol.doubts import judge_doubted_tokens, under_rules
from troth.protocol.findings import LOOKED_AT, MEAN_RATIO
from troth.protocol.request import Request
from troth.protocol.tensors import Dtype, widen
from troth.protocol.tokens import Sampling, TokenReport, judge_tokens
from troth.protocol.types import ZERO_HASH, Hash32
from troth.protocol.unsteady import ShakenRuns, distances


@dataclass(frozen=True, slots=True)
class Rules:
    """What of a class `judge_states` reads."""

    dtype: int
    state_cut: int
    exact: bool = False
    calibration: Hash32 = under_rules(ZERO_HASH)  # noqa: RUF009 -- frozen


@dataclass(frozen=True, slots=True)
class Verdict:
    """Scores over the cut, above 1 is refused, at the first look and after all of them; ``told``: see `TokenReport`.

    ``mean``: of a bfloat16 trace after all looks; ``held``: its score without long windows, which a court takes stake
    for. ``closest``: the worse of both scores had the second look been taken whatever the first one said, and no third;
    ``own``: the rows are bit for bit those of one of the verifier's runs.
    """

    name: str
    states: float
    text: float
    states_again: float
    text_again: float
    told: bool
    mean: float = 0.0
    held: float = 0.0
    closest: float = 0.0
    own: bool = False

    @property
    def refused(self) -> bool:
        """At the first look."""
        return max(self.states, self.text) > 1

    @property
    def refused_twice(self) -> bool:
        """At the last look, which is taken of what those before refuse or, by its mean, doubt."""
        return self.states_again > 1 or (self.text_again > 1 and self.told)

    @property
    def cannot_tell(self) -> bool:
        """Neither accepted nor refused."""
        return self.refused and not self.refused_twice and self.text_again > 1


def verdicts(shelf: Shelf, group: Group, way: str, scores: Arrays, cuts: Thresholds) -> Iterator[Verdict]:
    """One for each prompt of a group; ``scores`` are `TokenScorer`'s."""
    shaken = (*SHAKEN[shelf.dtype], *STRONGLY[shelf.dtype])
    runs = {name: shelf.read(group, name) for name in {way, "own", "again", *shaken}}
    if shelf.dtype:
        runs |= {name: shelf.read(group, name) for name in ("high", OTHERWISE)}
    for prompt, name in enumerate(group.names):
        first, brink, last = _states(shelf.dtype, runs, way, prompt, cuts)
        texts = _text(group, scores, way, prompt, cuts.margin_cut / 1e6)
        second = texts[1].score / texts[1].cut
        closest = max(brink, second if texts[1].told else min(second, 1.0))
        text = next((one for one in texts if one.accepted), texts[-1])
        told, is_own = text.told or text.accepted, _is_own(runs, way, prompt)
        yield Verdict(name, first, texts[0].score / texts[0].cut, last.cuts, text.score / text.cut, told,
                      last.mean, last.held, closest, is_own)  # fmt: skip


def refused_texts(group: Group, scores: Arrays, name: str, cut: float) -> list[bool]:
    """Which texts of a lie are refused by themselves, after all looks."""
    looks = [_text(group, scores, name, prompt, cut) for prompt in range(len(group.names))]
    return [not any(one.accepted for one in texts) and texts[-1].told for texts in looks]


def _is_own(runs: dict[str, Any], way: str, prompt: int) -> bool:
    """Whether rows are those of a run of the verifier's, at both boundaries."""
    return any(
        all(np.array_equal(runs[way][key][prompt], runs[name][key][prompt]) for key in ("rows-0", "rows-1"))
        for name in ("own", "again", OTHERWISE)
        if name in runs
    )


@dataclass(frozen=True, slots=True)
class _Last:
    """What the worse of both traces comes to after all looks."""

    cuts: float
    held: float
    mean: float


def _states(dtype: int, runs: dict[str, Any], way: str, prompt: int, cuts: Thresholds) -> tuple[float, float, _Last]:
    """By the first look, by the second whatever the first says, and after all that are taken."""
    rules, found = Rules(dtype, cuts.state_cut), []
    for key in ("rows-0", "rows-1"):
        claimed, own, again = (runs[name][key][prompt] for name in (way, "own", "again"))
        high, otherwise = (runs[name][key][prompt] if dtype else None for name in ("high", OTHERWISE))
        shaken = [runs[name][key][prompt] for name in SHAKEN[dtype]]
        first = judge_states(rules, claimed, own, high)
        look = partial(judge_states, rules, claimed, own, high, again, *([] if dtype else shaken), otherwise=otherwise)
        last = second = look()
        if first.accepted and first.mean <= LOOKED_AT:
            last = first
        elif dtype and (not second.accepted or second.mean > MEAN_RATIO):
            strongly = [runs[name][key][prompt] for name in STRONGLY[dtype]]
            apart = ([distances(widen(run, Dtype.BFLOAT16), high) for run in kind] for kind in (shaken, strongly))
            last = look(shaken=ShakenRuns(*apart))
        found.append((first.cuts, second.cuts, last))
    lasts = [last for *_, last in found]
    worst = _Last(max(one.cuts for one in lasts), max(one.held for one in lasts), max(one.mean for one in lasts))
    return max(first for first, *_ in found), max(second for _, second, _ in found), worst


def _text(group: Group, scores: Arrays, way: str, prompt: int, cut: float) -> tuple[TokenReport, ...]:
    """At all looks, whatever those before say."""
    tokens = [int(token) for token in scores[f"token/{way}"][prompt]]
    request = request_of(group, prompt)
    first = judge_tokens(scores[f"first/{way}"][prompt], tokens, request, cut)
    further = [
        judge_doubted_tokens(scores[f"{look}/{way}"][prompt][None], scores[noise][prompt], tokens, request, cut)
        for look, noise in (("kindest", "apart"), ("third", "apart at third"))
    ]
    return first, *further


def request_of(group: Group, prompt: int) -> Request:
    """What was asked; texts of these trials have no end token, so that all have one length."""
    sampling: Sampling = group.samplings[prompt]
    return Request(
        execution_class=ZERO_HASH,
        prompt_tokens=tuple(int(token) for token in group.tokens[prompt]),
        max_tokens=group.written,
        temperature_millionths=round(sampling.temperature * 1_000_000),
        top_p_millionths=round(sampling.top_p * 1_000_000),
        end_tokens=(),
    )
