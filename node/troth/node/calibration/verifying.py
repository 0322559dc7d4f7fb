"""What a verifier measures of a claim: distances of states, agreement of tiles, margins of tokens, the paper's four."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from troth.node.calibration.generating import CalibrationPlan, ClaimedRun, seed_of, words
from troth.node.calibration.prompts import Bucket
from troth.node.calibration.stack import Stack
from troth.node.engine.shaking import STRONGER, Shake
from troth.node.engine.torch_engine import from_words
from troth.node.judging.runs import LIGHTLY, STRONGLY, in_turn
from troth.protocol.agreement import agreeing_counts
from troth.protocol.doubts import first_look
from troth.protocol.scores import LongWindows, long_windows, relative_rms, rho
from troth.protocol.statistics import paper_statistics
from troth.protocol.tensors import Dtype, widen
from troth.protocol.trace import TILE_BYTES, TILE_ROWS, TileLayout, tile_columns
from troth.protocol.unsteady import Distances, ShakenRuns, ShakenWindows, distances

TILES = 16
"""Tiles looked at per trace and layout."""
RULES = {
    Dtype.FLOAT32: tuple((bits, steps) for bits in (7, 10, 12, 14) for steps in (1, 2, 4, 8)),
    Dtype.BFLOAT16: ((7, 3), (7, 5), (7, 7), (7, 10), (5, 1), (5, 2)),
}
"""Mantissa bits and steps tried for the contract's own test."""
LAYOUTS = ("permuted", "contiguous", "scattered")
LONG_MEANS, LONG_WEIGHTS = "long-means-{}", "long-weights-{}"
"""Names of what long windows say of a segment, see `scores.LongWindows`."""
AGAIN = 7
"""Positions of a piece in a verifier's second run: few rows are multiplied by another routine than many."""
Measured = dict[str, NDArray[Any]]


class VerifierRun:
    """The registered model, run as a verifier runs it: one prefill per segment, from the rows it was given.

    Args:
        high: the same weights in float32; needed for bfloat16.
    """

    def __init__(self, low: Stack, high: Stack | None, model: bytes, plan: CalibrationPlan) -> None:
        self._low = low
        self._high = high
        self._model = model
        self._plan = plan
        self._dtype = Dtype(plan.dtype)

    def measure(self, bucket: Bucket, claim: ClaimedRun, *, closely: bool = False) -> Measured:
        """Everything that thresholds are made from, as arrays over sequences (first axis).

        ``closely``: in bfloat16, long windows too, by two more runs.
        """
        measured: Measured = {}
        inputs: NDArray[Any] = np.concatenate([bucket.tokens, claim.text[:, :-1]], axis=1)
        own = high = inputs
        for index, claimed in enumerate(claim.rows):
            own, high = self._prefill(index, inputs)
            if closely and self._high is not None:
                measured |= self._long_windows(index, inputs, (claimed, own), high)
            measured |= {f"{name}-{index}": values for name, values in self._states(claimed, own, high).items()}
            measured |= {
                f"{name}-{index}": values for name, values in self._agreements(bucket, index, claimed, own).items()
            }
            inputs = claimed
        measured["sampled"] = np.array([sampling.temperature > 0 for sampling in bucket.samplings])
        measured["margins"] = self._margins(bucket, claim, own, None)
        if self._high is not None:
            measured["margins-high"] = self._margins(bucket, claim, own, high)
        return measured

    def _prefill(self, index: int, inputs: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        own = self._run(self._low, index, inputs)
        words_of_own = words(own, self._plan.dtype)
        if self._high is None:
            return words_of_own, words_of_own
        return words_of_own, words(self._run(self._high, index, inputs), 0)

    def _long_windows(
        self, index: int, inputs: NDArray[Any], rows: tuple[NDArray[Any], NDArray[Any]], high: NDArray[np.float32]
    ) -> Measured:
        """By the runs that a verifier takes where it doubts: one more in pieces, and one with other attention; where
        these refuse a trace, by shaken ones."""
        again = words(self._in_pieces(index, inputs), self._plan.dtype)
        self._low.use_attention("eager")
        try:
            otherwise = words(self._run(self._low, index, inputs), self._plan.dtype)
        finally:
            self._low.use_attention("sdpa")
        taken = [
            (*(widen(one, self._dtype) for one in runs), exact)
            for *runs, exact in zip(*rows, again, otherwise, high, strict=True)
        ]
        found = [long_windows(theirs, own, other, exact) for theirs, *own, other, exact in taken]
        if max(one.excess for one in found) > 1:
            light = self._shaken(index, inputs, high, LIGHTLY, 1)
            strong = self._shaken(index, inputs, high, STRONGLY, STRONGER)
            third = [ShakenRuns(*one) for one in zip(light, strong, strict=True)]
            found = [self._at_third(*one) for one in zip(found, taken, third, strict=True)]
        return {
            LONG_MEANS.format(index): np.array([one.mean for one in found]),
            LONG_WEIGHTS.format(index): np.array([one.weight for one in found]),
        }

    def _shaken(
        self, index: int, inputs: NDArray[Any], high: NDArray[np.float32], count: int, times: int
    ) -> list[list[Distances]]:
        """How far so many runs of every sequence are from float32."""
        found: list[list[Distances]] = [[] for _ in high]
        for alike in in_turn(count):
            rows = words(self._run(self._low, index, inputs, shake=Shake(times, alike)), self._plan.dtype)
            for kept, run, exact in zip(found, rows, high, strict=True):
                kept.append(distances(widen(run, self._dtype), exact))
        return found

    @staticmethod
    def _at_third(found: LongWindows, taken: tuple[NDArray[np.float32], ...], third: ShakenRuns) -> LongWindows:
        """With the same mean, which counts by so much less as shaken runs leave less of the excess."""
        theirs, *own, exact = taken
        if found.excess <= 1:
            return found
        left = min(ShakenWindows(theirs, own, third, exact).worst().excess / found.excess, 1.0)
        return LongWindows(found.mean, found.weight * left)

    def _in_pieces(self, index: int, inputs: NDArray[Any]) -> torch.Tensor:
        cache, found = self._low.cache(), []
        for start in range(0, inputs.shape[1], AGAIN):
            piece = inputs[:, start : start + AGAIN]
            found.append(self._run(self._low, index, piece, cache, start))
        return torch.cat(found, dim=1)

    def _run(
        self,
        stack: Stack,
        index: int,
        inputs: NDArray[Any],
        cache: DynamicCache | None = None,
        start: int = 0,
        *,
        shake: Shake | None = None,
    ) -> torch.Tensor:
        if index == 0:
            entering = stack.embed(torch.from_numpy(np.ascontiguousarray(inputs)))
        else:
            entering = from_words(inputs, self._plan.dtype).to(stack.device, stack.dtype)
        return stack.forward(shake(entering) if shake else entering, self._plan.segments[index], cache, start)

    def _states(self, claimed: NDArray[Any], own: NDArray[Any], high: NDArray[np.float32]) -> Measured:
        distances, statistics = [], []
        for theirs, ours, exact in zip(claimed, own, high, strict=True):
            statistics.append(astuple(paper_statistics(theirs, ours, self._dtype)))
            if self._dtype is Dtype.FLOAT32:
                distances.append(relative_rms(theirs, ours))
            else:
                distances.append(rho(widen(theirs, self._dtype), [widen(ours, self._dtype)], exact))
        return {"distances": np.array(distances, np.float32), "paper": np.array(statistics, np.float32)}

    def _agreements(self, bucket: Bucket, index: int, claimed: NDArray[Any], own: NDArray[Any]) -> Measured:
        found: dict[str, list[NDArray[np.int64]]] = {layout: [] for layout in LAYOUTS}
        for sequence, (theirs, ours) in enumerate(zip(claimed, own, strict=True)):
            draw = np.random.default_rng([bucket.index, index, sequence])
            for layout in LAYOUTS:
                pairs = self._tiles(layout, draw, seed_of(bucket.first + sequence, "task"), (theirs, ours))
                found[layout].append(agreeing_counts(pairs, self._dtype, RULES[self._dtype]))
        return {f"agreeing-{layout}": np.array(counts, np.uint16) for layout, counts in found.items()}

    def _tiles(
        self, layout: str, draw: np.random.Generator, task: bytes, rows: tuple[NDArray[Any], NDArray[Any]]
    ) -> list[tuple[bytes, bytes]]:
        count, columns = rows[0].shape
        if layout == "permuted":
            cuts = [TileLayout(task, self._model, count, columns, self._dtype).cut(part) for part in rows]
            indices = draw.integers(len(cuts[0]), size=TILES)
            return [(cuts[0][one].tobytes(), cuts[1][one].tobytes()) for one in indices]
        width = tile_columns(self._dtype)
        pairs = []
        for _ in range(TILES):
            if layout == "contiguous":
                row, column = draw.integers(count - TILE_ROWS + 1), draw.integers(columns - width + 1)
                place: Any = (slice(row, row + TILE_ROWS), slice(column, column + width))
            else:
                elements = TILE_BYTES // self._dtype.element_bytes
                place = (draw.integers(count, size=elements), draw.integers(columns, size=elements))
            first, second = (self._big_endian(part[place]) for part in rows)
            pairs.append((first, second))
        return pairs

    def _big_endian(self, values: NDArray[Any]) -> bytes:
        width = self._dtype.element_bytes
        return np.ascontiguousarray(values).view(f"u{width}").astype(f">u{width}").tobytes()

    def _margins(
        self, bucket: Bucket, claim: ClaimedRun, own: NDArray[Any], high: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """What all tokens lose at the first look, by the own rows or the float32 reference's."""
        first, found = bucket.tokens.shape[1] - 1, []
        for sequence, text in enumerate(claim.text):
            seed, sampling = seed_of(bucket.first + sequence), bucket.samplings[sequence]
            logits, beside = _logits(self._low, own[sequence, first:]), None
            if self._high is not None and high is not None:
                logits, beside = _logits(self._high, high[sequence, first:]), logits
            tokens = list(map(int, text))
            found.append(first_look(logits, tokens, sampling, beside=beside, seed=seed, first_position=first))
        return np.array(found, np.float32)


def _logits(stack: Stack, rows: NDArray[Any]) -> NDArray[np.float32]:
    """What a model's head makes of rows of the last segment."""
    states = from_words(rows, 0 if rows.dtype == np.float32 else 1).to(stack.device, stack.dtype)
    logits: NDArray[np.float32] = stack.logits(states).numpy()
    return logits
