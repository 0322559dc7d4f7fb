"""Verdicts over kept rows: by the first look alone, and with the second, by the product's own functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.judging.corpus import Group
from benchmarks.judging.runs import OTHERWISE, SHAKEN, Arrays, Shelf
from troth.node.models.thresholds import Thresholds
from troth.protocol.comparison import judge_states
from troth.protocol.doubts import judge_doubted_tokens, under_rules
from troth.protocol.findings import LOOKED_AT
from troth.protocol.request import Request
from troth.protocol.tokens import Sampling, TokenReport, judge_tokens
from troth.protocol.types import ZERO_HASH, Hash32


@dataclass(frozen=True, slots=True)
class Rules:
    """What of a class `judge_states` reads."""

    dtype: int
    state_cut: int
    exact: bool = False
    calibration: Hash32 = under_rules(ZERO_HASH)  # noqa: RUF009 -- frozen


@dataclass(frozen=True, slots=True)
class Verdict:
    """Scores over the cut, above 1 is refused, at the first and the second look; ``told``: see `TokenReport`.

    ``closest``: the worse of both scores had the second look been taken whatever the first one said; ``own``: the rows
    are bit for bit those of one of the verifier's runs.
    """

    name: str
    states: float
    text: float
    states_again: float
    text_again: float
    told: bool
    closest: float = 0.0
    own: bool = False

    @property
    def refused(self) -> bool:
        """At the first look."""
        return max(self.states, self.text) > 1

    @property
    def refused_twice(self) -> bool:
        """At the second look, which is taken of what the first one refuses or, by its mean, doubts."""
        return self.states_again > 1 or (self.text_again > 1 and self.told)

    @property
    def cannot_tell(self) -> bool:
        """Neither accepted nor refused."""
        return self.refused and not self.refused_twice and self.text_again > 1


def verdicts(shelf: Shelf, group: Group, way: str, scores: Arrays, cuts: Thresholds) -> Iterator[Verdict]:
    """One for each prompt of a group; ``scores`` are `TokenScorer`'s."""
    further = ("again",) if shelf.dtype else ("again", *SHAKEN)
    runs = {name: shelf.read(group, name) for name in {way, "own", *further}}
    if shelf.dtype:
        runs |= {name: shelf.read(group, name) for name in ("high", OTHERWISE)}
    for prompt, name in enumerate(group.names):
        states = _states(shelf.dtype, runs, way, prompt, cuts)
        texts = _text(group, scores, way, prompt, cuts.margin_cut / 1e6)
        first, doubted = texts
        second, brink = first if first.accepted else doubted, doubted.score / doubted.cut
        closest = max(states[2], brink if doubted.told else min(brink, 1.0))
        yield Verdict(name, states[0], first.score / first.cut, states[1], second.score / second.cut,
                      second.told or second.accepted, closest, _is_own(runs, way, prompt))  # fmt: skip


def refused_texts(group: Group, scores: Arrays, name: str, cut: float) -> list[bool]:
    """Which texts of a lie are refused by themselves, at the second look."""
    looks = [_text(group, scores, name, prompt, cut) for prompt in range(len(group.names))]
    return [not first.accepted and not second.accepted and second.told for first, second in looks]


def _is_own(runs: dict[str, Any], way: str, prompt: int) -> bool:
    """Whether rows are those of a run of the verifier's, at both boundaries."""
    return any(
        all(np.array_equal(runs[way][key][prompt], runs[name][key][prompt]) for key in ("rows-0", "rows-1"))
        for name in ("own", "again", OTHERWISE)
        if name in runs
    )


def _states(dtype: int, runs: dict[str, Any], way: str, prompt: int, cuts: Thresholds) -> tuple[float, ...]:
    """By the first look, by the second where the first doubts, and by the second in any case."""
    rules, found = Rules(dtype, cuts.state_cut), []
    for key in ("rows-0", "rows-1"):
        claimed, own = (runs[name][key][prompt] for name in (way, "own"))
        others = [runs[name][key][prompt] for name in ("again", *(() if dtype else SHAKEN))]
        high, otherwise = (runs[name][key][prompt] if dtype else None for name in ("high", OTHERWISE))
        first = judge_states(rules, claimed, own, high)
        doubted = judge_states(rules, claimed, own, high, *others, otherwise=otherwise)
        again = doubted if first.cuts > 1 or first.mean > LOOKED_AT else first
        found.append([first.cuts, again.cuts, doubted.cuts])
    return tuple(map(float, np.max(found, axis=0)))


def _text(group: Group, scores: Arrays, way: str, prompt: int, cut: float) -> tuple[TokenReport, TokenReport]:
    """At both looks, whatever the first one says."""
    tokens = [int(token) for token in scores[f"token/{way}"][prompt]]
    request = request_of(group, prompt)
    first = judge_tokens(scores[f"first/{way}"][prompt], tokens, request, cut)
    kindest, noise = scores[f"kindest/{way}"][prompt][None], scores["apart"][prompt]
    return first, judge_doubted_tokens(kindest, noise, tokens, request, cut)


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


def mean_ratios(shelf: Shelf, group: Group, way: str) -> list[float]:
    """The mean noise ratio of every prompt's whole trace in a bfloat16 class."""
    runs = {name: shelf.read(group, name)["rows-1"] for name in (way, "own", "high")}
    return [
        judge_states(Rules(1, 1_000_000), claimed, own, high).mean
        for claimed, own, high in zip(runs[way], runs["own"], runs["high"], strict=True)
    ]
