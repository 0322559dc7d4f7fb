"""What judging costs a verifier beside its own prefill, in processor time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch

from benchmarks.judging.corpus import Group
from benchmarks.judging.recording import Recorder
from benchmarks.judging.verdicts import Rules
from troth.node.calibration.generating import CalibrationPlan, prefill, words
from troth.node.engine.torch_engine import from_words
from troth.node.judging import LOGIT_ROWS
from troth.protocol.comparison import judge_states
from troth.protocol.tokens import choices, margins
from troth.protocol.types import Segment

PROMPTS = 6
Result = TypeVar("Result")


def judging_share(recorder: Recorder, group: Group) -> float:
    """Processor time of comparing states and tokens at the first look, per cent of one prefill with its logits."""
    spent = np.zeros(2)
    for prompt in range(PROMPTS):
        spent += _one(recorder, group, prompt)
    return float(100 * spent[1] / spent[0])


def _one(recorder: Recorder, group: Group, prompt: int) -> tuple[float, float]:
    low, high = recorder.heads
    kept = {name: recorder.shelf.read(group, name) for name in ("decode", "own")}
    text, first = kept["decode"]["text"][prompt], group.tokens.shape[1] - 1
    plan = CalibrationPlan((Segment(0, low.total),), group.written, recorder.dtype)

    def run() -> torch.Tensor:
        (rows,) = prefill(low, group.tokens[prompt : prompt + 1], text[None], plan)
        return low.logits(from_words(rows[0, first:], recorder.dtype))

    with torch.inference_mode():
        computing, logits = _timed(run)
    values, sampling, seed = logits.numpy(), group.samplings[prompt], group.seed(prompt)
    rows = kept["own"]["rows-1"][prompt]
    reference = None if high is None else words(from_words(rows, 1).float(), 0)
    tokens = [int(token) for token in text]

    def judge() -> None:
        judge_states(Rules(recorder.dtype, 1_000_000), kept["decode"]["rows-1"][prompt], rows, reference)
        for start in range(0, len(tokens), LOGIT_ROWS):
            block, place = values[start : start + LOGIT_ROWS], first + start
            margins(block, tokens[start : start + LOGIT_ROWS], sampling, seed=seed, first_position=place)
            if recorder.dtype:
                mine = choices(block, sampling, seed=seed, first_position=place)
                margins(block, mine, sampling, seed=seed, first_position=place)

    return computing, _timed(judge)[0]


def _timed(run: Callable[[], Result]) -> tuple[float, Result]:
    started = time.process_time()
    found = run()
    return time.process_time() - started, found
