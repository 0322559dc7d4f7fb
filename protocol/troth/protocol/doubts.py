"""A second look, before a verifier says no: a client's prompt must not make an honest node look like a cheat.

Prompts can make rounding as large as anybody likes. One that is nothing but token 0 moves the logits of a bfloat16 run
by 2.5; one letter repeated leaves rows nearly alike, so that a spread over rows is next to nothing. Under the second
rules a verifier that doubts a trace runs the same positions another way, as nodes decode them. Then states are measured
by the larger noise of its own runs, and a token counts by what it loses in the eyes of the judge who is kindest to it.

What is still beyond the cut, but no more than NOISE_FACTOR times the verifier's own noise in that row, cannot be
judged: the word is *cannot tell*, which costs nobody stake. The rest is a no.

By the third rules that reach of noise says at both looks, too, what a token at the nucleus' end loses (`margins`), and
a token that no noise explains counts in the whole.

By the fourth rules a single float32 row has less room (`scores.PRECISE_ROW_FACTOR`), and a single bfloat16 row is
measured by the median row's noise at least (`scores.rho_and_rows`).

By the fifth rules a token has to be what its node's own row chooses, too (`straying`), whoever looks how often.

By the sixth rules a bfloat16 trace may be no further from float32 over many rows than the verifier's own runs are, one
of which computes attention otherwise (`scores.long_windows`): noise averages out there, and what a cheaper computation
loses does not. That refuses a trace, and takes no stake.

By the seventh rules a verifier that would say no in bfloat16 looks a third time: by runs with other last bits, which it
draws, at states (`unsteady`) and at texts. Where such a run tips, an honest node with other kernels may as well.

By the eighth rules a court takes stake for long windows, too (`comparison.StateReport.held`), once its reviewers have
looked a third time: what shaken runs do not explain no prompt does.

A class says in its calibration by which rules it judges: those of before keep theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import InvalidTokens
from troth.protocol.margins import losses
from troth.protocol.masks import RowRule
from troth.protocol.request import Request
from troth.protocol.scores import NOISE_FACTOR
from troth.protocol.tokens import Logits, Sampling, TokenReport, judge_tokens
from troth.protocol.types import Hash32

SIXTH_RULES = 6
SEVENTH_RULES = 7
EIGHTH_RULES = NEWEST_RULES = 8
RULES = {
    b"TRJ2": 2, b"TRJ3": 3, b"TRJ4": 4, b"TRJ5": 5, b"TRJ6": SIXTH_RULES, b"TRJ7": SEVENTH_RULES, b"TRJ8": NEWEST_RULES,
}  # fmt: skip
"""First bytes of a calibration whose class judges by later rules than the first; 28 bytes of its hash follow."""
LEAST_REACH = 0.01
"""Logits that noise may move in any row: where a verifier's two runs happen to agree, others may not."""
CONTENDERS = 32
"""Likeliest tokens whose logits say how far two runs are apart: the others win nothing."""


def rules_version(calibration: Hash32) -> int:
    """By which rules a class judges, 1 to NEWEST_RULES: its ``calibration`` says so."""
    return RULES.get(bytes(calibration[:4]), 1)


def under_rules(data: Hash32, version: int = NEWEST_RULES) -> Hash32:
    """The calibration of a class that judges by these rules, from the hash of its measurements."""
    tags = {number: tag for tag, number in RULES.items()}
    return data if version == 1 else Hash32(tags[version] + bytes(data[:28]))


def reach(noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logits that noise may move in each row, by how far two runs are apart there."""
    found: NDArray[np.float64] = np.maximum(NOISE_FACTOR * noise, LEAST_REACH)
    return found


def rows_apart(seen: Sequence[NDArray[Any]], ruled: Sequence[RowRule] | None = None) -> NDArray[np.float64]:
    """How far runs are apart from the last of them in each row, at most, by the tokens that contend for it once it is
    transformed."""
    if ruled is None:
        found: NDArray[np.float64] = np.max([apart(one, seen[-1]) for one in seen[:-1]], axis=0)
        return found
    by_rows = []
    for index, rule in enumerate(ruled):
        *others, last = (rule.kept(rule.apply(one[index]))[None] for one in seen)
        by_rows.append(max(float(apart(one, last)[0]) for one in others) / rule.stretch)
    return np.array(by_rows)


def first_look(
    logits: Logits,
    tokens: Sequence[int],
    sampling: Sampling,
    ruled: Sequence[RowRule] | None = None,
    *,
    beside: Logits | None,
    seed: Hash32,
    first_position: int,
) -> NDArray[np.float64]:
    """What consecutive tokens lose at the first look of the third rules; see `margins.losses`.

    ``beside``: the rows of another run, which tell how far noise reaches; None: there is none.
    """
    found = losses(logits, tokens, sampling, ruled, seed=seed, first_position=first_position)
    bounds, doubtful = np.full(len(found.whole), LEAST_REACH), found.doubtful(LEAST_REACH)
    if beside is not None and len(doubtful):
        some = None if ruled is None else [ruled[index] for index in doubtful]
        bounds[doubtful] = reach(rows_apart([beside[doubtful], logits[doubtful]], some))
    return found.counted(bounds)


def apart(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """How far two runs' logits are apart in each row, in logits; both are rows x vocabulary.

    RMS over the contenders of the second one, around their median: a shift of all logits changes no choice.
    """
    if first.shape != second.shape or first.ndim != 2:
        raise InvalidTokens("Runs of one text have logits of one shape", (first.shape, second.shape), "Compare those.")
    count = min(CONTENDERS, first.shape[1])
    likely = np.argpartition(second, -count, axis=1)[:, -count:]
    difference = np.take_along_axis(first, likely, 1).astype(np.float64) - np.take_along_axis(second, likely, 1)
    difference -= np.median(difference, axis=1, keepdims=True)
    found: NDArray[np.float64] = np.sqrt(np.mean(np.square(difference), axis=1))
    return found


def judge_doubted_tokens(
    by_judges: NDArray[np.float64],
    noise: NDArray[np.float64],
    tokens: Sequence[int],
    request: Request,
    cut: float,
    *,
    version: int = NEWEST_RULES,
) -> TokenReport:
    """Judge a text at the second look; ``cut`` in logits, ``version`` of the rules.

    ``by_judges``: what all tokens lose by each run, judges x tokens; ``noise``: how far the runs are apart in each
    token's row. The report's ``told`` is False where only noise speaks for the text; its ``worst`` is the largest
    margin that no noise explains.
    """
    kindest = by_judges.min(axis=0)
    if kindest.shape != noise.shape:
        raise InvalidTokens("One noise per token", (kindest.shape, noise.shape), "Compare the same rows.")
    explained = NOISE_FACTOR * noise
    left = np.maximum(kindest - explained, 0.0) if version < 3 else np.where(kindest > explained, kindest, 0.0)
    beyond = judge_tokens(left, tokens, request, cut)
    report = replace(judge_tokens(kindest, tokens, request, cut), worst=beyond.worst)
    return replace(report, told=report.accepted or not beyond.accepted)
