"""What a node in the middle of a pipeline can do to a token: one of its rows, bent as far as a class lets pass.

The row that a token hangs on is bent along the gradient of two logits' difference, so that the runner-up wins. It is
bent by as many cuts as a single row may be away, and by less where less suffices: far away the gradient misleads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.judging import corpus
from benchmarks.judging.corpus import Group
from benchmarks.judging.recording import Recorder
from benchmarks.judging.runs import run_all
from troth.node.calibration.stack import Stack
from troth.node.models.thresholds import Thresholds
from troth.protocol.scores import NARROW_ROW_FACTOR, RHO_FLOOR, ROW_FACTOR, dimension_spread, weighted_rms
from troth.protocol.tensors import Dtype, widen
from troth.protocol.tokens import Sampling, noise, noisy_scores
from troth.protocol.types import Segment

PLACES = 3
"""Tokens of each text that are tried."""
SHARES = (1.0, 0.3, 0.1, 0.03)
"""Of what a row may be bent by."""
Row = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Attempt:
    """``gap``: by how many logits, with the noise, the token won; ``reach``: how far the bent row moves that difference
    by its gradient; ``turned``: whether the runner-up won in a pass over a bent row."""

    gap: float
    reach: float
    turned: bool


class _Downstream:
    """The layers behind the middle, as a verifier of the last segment runs them, on one text."""

    def __init__(self, stack: Stack, group: Group, prompt: int, states: NDArray[np.float32], position: int) -> None:
        self._stack = stack
        self._states = torch.from_numpy(states[: position + 1].astype(np.float32))[None]
        self.sampling = Sampling(0.7, 1.0) if prompt % 2 else Sampling(0.0, 1.0)
        self._seed, self._position = group.seed(prompt), position

    def logits(self, bend: torch.Tensor) -> torch.Tensor:
        """Of the last position, its row bent by so much."""
        states = torch.cat([self._states[:, :-1], self._states[:, -1:] + bend], dim=1)
        half = Segment(self._stack.total // 2, self._stack.total)
        return self._stack.logits(self._stack.forward(states, half)[:, -1])[0]

    def scores(self, logits: torch.Tensor) -> NDArray[np.float64]:
        """What decides, with the order's noise."""
        values = logits.detach().numpy()
        gumbel = noise(self._seed, self._position, len(values)) if self.sampling.temperature else None
        return noisy_scores(values, self.sampling, gumbel)


def steering_figures(recorder: Recorder, cuts: Thresholds) -> Iterator[Figure]:
    """How many tokens the second likeliest takes the place of, tried on the ordinary prompts in two slices."""
    group = corpus.ordinary(recorder.folder)
    run_all(recorder.folder, recorder.shelf, [group], ())
    low, high = recorder.heads
    tried = []
    for prompt in range(len(group.tokens)):
        for place in _places(group):
            states, room = _room(recorder, group, prompt, place, cuts)
            tried.append(_attempt(_Downstream(high or low, group, prompt, states, place), room))
    turned, reach = sum(one.turned for one in tried), [one.reach for one in tried]
    note = (
        f"of {len(tried)}; by the gradient a row moves two logits by {np.median(reach):.3g}, {max(reach):.3g} at most"
    )
    near = sum(one.gap <= max(reach) for one in tried)
    note += f"; {near} had a runner-up as near"
    yield Figure(
        f"tokens turned from the middle, {('float32', 'bfloat16')[recorder.dtype]}", turned, "tokens", note=note
    )


def _places(group: Group) -> list[int]:
    first = group.tokens.shape[1] - 1
    return [first + int(place) for place in np.linspace(0, group.written - 4, PLACES)]


def _room(
    recorder: Recorder, group: Group, prompt: int, place: int, cuts: Thresholds
) -> tuple[NDArray[np.float32], Row]:
    """A verifier's own rows in the middle, and how far each element of one may be: their RMS is what passes."""
    own = recorder.shelf.read(group, "own")["rows-0"][prompt]
    cut = cuts.state_cut / 1e6
    if not recorder.dtype:
        sizes = np.abs(own[place]).astype(np.float64)
        return own, NARROW_ROW_FACTOR * cut * np.maximum(sizes, np.median(sizes))
    high, rows = recorder.shelf.read(group, "high")["rows-0"][prompt], widen(own, Dtype.BFLOAT16)
    sigma = dimension_spread(high)
    rounding = np.maximum(weighted_rms(rows, high, sigma), RHO_FLOOR)
    return rows, ROW_FACTOR * cut * max(rounding[place], np.median(rounding)) * sigma


def _attempt(behind: _Downstream, room: Row) -> Attempt:
    bend = torch.zeros(len(room), requires_grad=True)
    logits = behind.logits(bend)
    scores = behind.scores(logits)
    second, first = np.argpartition(scores, -2)[-2:]
    (slope,) = torch.autograd.grad(logits[int(second)] - logits[int(first)], bend)
    steep = room * slope.numpy().astype(np.float64)
    reach = float(np.sqrt(len(room)) * np.linalg.norm(steep))
    step = torch.from_numpy((room * steep / np.linalg.norm(steep) * np.sqrt(len(room))).astype(np.float32))
    gap = float(scores[first] - scores[second])
    with torch.no_grad():
        turned = reach > gap / 2 and any(
            int(behind.scores(behind.logits(share * step)).argmax()) == second for share in SHARES
        )
    return Attempt(gap, reach, turned)
