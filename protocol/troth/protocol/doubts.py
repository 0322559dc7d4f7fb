"""A second look, before a verifier says no: a client's prompt must not make an honest node look like a cheat.

Prompts can make rounding as large as anybody likes. One that is nothing but token 0 moves the logits of a bfloat16 run
by 2.5; one letter repeated leaves rows nearly alike, so that a spread over rows is next to nothing. Under the second
rules a verifier that doubts a trace runs the same positions another way, as nodes decode them. Then states are measured
by the larger noise of its own runs, and a token counts by what it loses in the eyes of the judge who is kindest to it.

What is still beyond the cut, but no more than NOISE_FACTOR times the verifier's own noise in that row, cannot be
judged: the word is *cannot tell*, which costs nobody stake. The rest is a no.

A class says in its calibration by which rules it judges: those of before keep theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import InvalidTokens
from troth.protocol.request import Request
from troth.protocol.scores import NOISE_FACTOR
from troth.protocol.tokens import TokenReport, judge_tokens
from troth.protocol.types import Hash32

SECOND_RULES = b"TRJ2"
"""First bytes of a calibration whose class judges by the second rules; 28 bytes of its hash follow."""
CONTENDERS = 32
"""Likeliest tokens whose logits say how far two runs are apart: the others win nothing."""


def rules_version(calibration: Hash32) -> int:
    """By which rules a class judges, 1 or 2: its ``calibration`` says so."""
    return 2 if bytes(calibration[: len(SECOND_RULES)]) == SECOND_RULES else 1


def under_second_rules(data: Hash32) -> Hash32:
    """The calibration of a class that judges by the second rules, from the hash of its measurements."""
    return Hash32(SECOND_RULES + bytes(data[: 32 - len(SECOND_RULES)]))


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
) -> TokenReport:
    """Judge a text at the second look; ``cut`` in logits.

    ``by_judges``: the margins of all tokens by each run, judges x tokens; ``noise``: how far the runs are apart in each
    token's row. The report's ``told`` is False where only noise speaks for the text; its ``worst`` is the largest
    margin that no noise explains.
    """
    kindest = by_judges.min(axis=0)
    if kindest.shape != noise.shape:
        raise InvalidTokens("One noise per token", (kindest.shape, noise.shape), "Compare the same rows.")
    beyond = judge_tokens(np.maximum(kindest - NOISE_FACTOR * noise, 0.0), tokens, request, cut)
    report = replace(judge_tokens(kindest, tokens, request, cut), worst=beyond.worst)
    return replace(report, told=report.accepted or not beyond.accepted)
