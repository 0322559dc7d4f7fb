"""What judging costs a verifier beside its own prefill, in processor time; in bfloat16 it has a float32 one, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.judging.corpus import Group
from benchmarks.judging.recording import Recorder
from benchmarks.judging.verdicts import Rules
from troth.node.calibration.generating import CalibrationPlan, prefill, words
from troth.node.engine.torch_engine import from_words
from troth.node.judging.texts import LOGIT_ROWS
from troth.protocol.comparison import judge_states
from troth.protocol.doubts import first_look
from troth.protocol.foresight import Foresight
from troth.protocol.scores import rho
from troth.protocol.straying import strays
from troth.protocol.tensors import Dtype, widen
from troth.protocol.tokens import choices
from troth.protocol.types import Segment

PROMPTS = 6
Result = TypeVar("Result")


def judging_share(recorder: Recorder, group: Group) -> float:
    """Processor time of comparing states and tokens at the first look, per cent of the prefill with its logits."""
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
        if high is not None:
            (exact,) = prefill(high, group.tokens[prompt : prompt + 1], text[None], replace(plan, dtype=0))
            high.logits(from_words(exact[0, first:], 0))
        return low.logits(from_words(rows[0, first:], recorder.dtype))

    with torch.inference_mode():
        computing, logits = _timed(run)
    values, sampling, seed = logits.numpy(), group.samplings[prompt], group.seed(prompt)
    rows = kept["own"]["rows-1"][prompt]
    reference = None if high is None else words(from_words(rows, 1).float(), 0)
    tokens = [int(token) for token in text]

    def stray(places: NDArray[np.intp]) -> None:
        if not len(places):
            return
        claimed = kept["decode"]["rows-1"][prompt][first + places]
        logits = low.logits(from_words(claimed, recorder.dtype)).numpy()
        theirs, where = [tokens[place] for place in places], list(first + places)
        told = partial(strays, dtype=Dtype(recorder.dtype), seed=seed)
        doubted = [index for index, one in enumerate(told(logits, theirs, sampling, positions=where)) if one.worst]
        if high is not None and doubted:
            logits = high.logits(from_words(claimed[doubted], 1).float()).numpy()
            told(logits, [theirs[one] for one in doubted], sampling, positions=[where[one] for one in doubted])

    def judge() -> None:
        judge_states(Rules(recorder.dtype, 1_000_000), kept["decode"]["rows-1"][prompt], rows, reference)
        doubted, foresight = [], Foresight(sampling)
        for start in range(0, len(tokens), LOGIT_ROWS):
            block, place = values[start : start + LOGIT_ROWS], first + start
            theirs, beside = tokens[start : start + LOGIT_ROWS], block if recorder.dtype else None
            lost = first_look(block, theirs, sampling, beside=beside, seed=seed, first_position=place)
            if recorder.dtype:
                foresight.follow(block, theirs)
                mine = choices(block, sampling, seed=seed, first_position=place, guesses=theirs)
                differing = np.flatnonzero(np.array(mine) != theirs)
                for row in differing:
                    one = slice(row, row + 1)
                    first_look(
                        block[one], mine[one], sampling, beside=block[one], seed=seed, first_position=place + int(row)
                    )
            doubted.append(start + (differing if recorder.dtype else np.flatnonzero(lost)))
        stray(np.concatenate(doubted))
        _text_noise(first + foresight.foreseen, kept["decode"]["rows-1"][prompt], rows, reference)

    with torch.inference_mode():
        return computing, _timed(judge)[0]


def _text_noise(late: int, claimed: NDArray[Any], own: NDArray[Any], reference: NDArray[np.float32] | None) -> None:
    if reference is not None and late < len(claimed):
        rho(widen(claimed[late:], Dtype.BFLOAT16), [widen(own[late:], Dtype.BFLOAT16)], reference[late:])


def _timed(run: Callable[[], Result]) -> tuple[float, Result]:
    started = time.process_time()
    found = run()
    return time.process_time() - started, found
