"""The trace of a segment by canonical arithmetic: what an honest side of a dispute commits to, and compares with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from troth.protocol.arithmetic import steps
from troth.protocol.arithmetic.layers import LayerRows, layer_rows
from troth.protocol.arithmetic.operations import Operation, StepKind
from troth.protocol.disputes.layout import ONE, TOLERANCE, WORD_NUMBERS, Layout
from troth.protocol.disputes.tree import WordTree
from troth.protocol.errors import InvalidStep
from troth.protocol.exact_numbers import NumberFormat
from troth.protocol.types import Hash32

Numbers = NDArray[np.float32]
LayerWeights = Callable[[int], Mapping[str, Numbers]]
"""The tensors of a layer by full name, float32."""

FLOAT32 = NumberFormat.FLOAT32


@dataclass(frozen=True)
class SegmentTrace:
    """All numbers of a segment at positions 0 to ``layout.position``; ``norm``: the last factor and norm."""

    layout: Layout
    layers: tuple[LayerRows, ...]
    norm: tuple[Numbers, Numbers] | None
    _roots: dict[int, Hash32] = field(default_factory=dict, repr=False)
    _last: dict[int, WordTree] = field(default_factory=dict, repr=False)

    @property
    def top(self) -> WordTree:
        """Over the roots of all tensors."""
        roots = []
        for tensor in range(self.layout.count):
            if tensor not in self._roots:
                self._roots[tensor] = self._made(tensor).root
            roots.append(self._roots[tensor])
        return WordTree(b"".join(roots), self.layout.depth)

    def tensor(self, number: int) -> WordTree:
        """One tensor's tree; that of the last one asked for is kept."""
        if number not in self._last:
            self._last.clear()
            self._last[number] = self._made(number)
        return self._last[number]

    @property
    def last_row(self) -> Numbers:
        """What the segment gives at the position in dispute, of shape (hidden,)."""
        last = self.norm[1] if self.norm is not None else self.layers[-1].numbers[Operation.OUTPUT]
        row: Numbers = last[self.layout.position]
        return row

    def furthest(self, signed: Numbers) -> int | None:
        """The element of a signed row that is too far from the trace's, by the contract's own steps; None: none is."""
        last = self.last_row
        with np.errstate(all="ignore"):
            distances = np.abs(signed.astype(np.float64) - last)
        candidates = np.argsort(-np.where(np.isfinite(distances), distances, np.inf))[:2]
        return next((int(at) for at in candidates if is_far(signed, last, int(at))), None)

    def _made(self, tensor: int) -> WordTree:
        rows, across = self.layout.levels(tensor)
        return WordTree(_words(self._table(tensor), across), rows + across)

    def _table(self, tensor: int) -> Numbers:
        """Rows as they are committed to; a single zero for what the layer does not have."""
        layer, operation = self.layout.where(tensor)
        if not self.layout.exists(tensor):
            return np.zeros((1, 1), np.float32)
        if layer == len(self.layout.model.pattern):
            return self._norm_table(operation)
        rows = self.layers[layer - self.layout.first]
        if operation is Operation.VALUE:
            return np.ascontiguousarray(rows.numbers[operation].T)
        found = [rows.row(operation, position).view(np.float32) for position in range(self.layout.position + 1)]
        table = np.zeros((len(found), max(len(row) for row in found)), np.float32)
        for row, numbers in zip(table, found, strict=True):
            row[: len(numbers)] = numbers
        return table

    def _norm_table(self, operation: Operation) -> Numbers:
        assert self.norm is not None
        if operation is Operation.INPUT:
            return self.layers[-1].numbers[Operation.OUTPUT]
        return self.norm[0 if operation is Operation.INPUT_FACTOR else 1]


def segment_trace(layout: Layout, weights: LayerWeights, states: Numbers, norm: Numbers | None) -> SegmentTrace:
    """Compute everything.

    Args:
        weights: of each layer, asked for one after the other.
        states: what the segment reads, of shape (position + 1, hidden): of the first one embeddings, scaled.
        norm: weights of the last norm, where the model ends with the segment.

    Raises:
        InvalidStep: weights or states of other shapes.
    """
    if states.shape[0] != layout.position + 1 or (norm is None) == layout.is_last:
        raise InvalidStep("The states, or the last norm, are not the segment's", states.shape, "Take what it read.")
    made = []
    # A zero is +0 everywhere.
    states = states + np.float32(0)
    for layer in range(layout.first, layout.end):
        rows = layer_rows(layout.model.layer(layer), weights(layer), states)
        made.append(rows)
        states = rows.numbers[Operation.OUTPUT]
    return SegmentTrace(layout, tuple(made), None if norm is None else _normed(layout, states, norm))


def embedded(rows: Numbers, scale: int) -> Numbers:
    """Tokens' rows of the embedding as the first states; ``scale`` in float32 bits."""
    factor = np.uint32(scale).view(np.float32)
    return (rows if scale == ONE else rows.astype(np.float64) * float(factor)).astype(np.float32) + np.float32(0)


def is_far(signed: Numbers, last: Numbers, element: int) -> bool:
    """Whether one number of a signed row is beyond the tolerance, each step rounded to float32 as in the contract."""
    factor = steps.evaluate(StepKind.FACTOR, [_bits(last)], [0], FLOAT32)
    if not np.isfinite(np.uint32(factor).view(np.float32)):
        return False
    pair = [_bits(signed[element : element + 1]), [_bits(last[element : element + 1])[0] ^ 1 << 31]]
    difference = steps.evaluate(StepKind.ADDITION, pair, [], FLOAT32)
    return steps.evaluate(StepKind.PRODUCT, [[difference], [factor]], [], FLOAT32) & 0x7FFFFFFF > TOLERANCE


def _normed(layout: Layout, states: Numbers, weights: Numbers) -> tuple[Numbers, Numbers]:
    """The last norm number by number."""
    shape = layout.model.layer(layout.end)
    factors = [steps.evaluate(StepKind.FACTOR, [_bits(row)], [shape.epsilon], FLOAT32) for row in states]
    shifted, weight = [int(shape.shifted)], _bits(weights)

    def normed_row(row: Numbers, factor: int) -> list[int]:
        pairs = zip(_bits(row), weight, strict=True)
        return [steps.evaluate(StepKind.NORM, [[x], [factor], [w]], shifted, FLOAT32) for x, w in pairs]

    normed = [normed_row(row, factor) for row, factor in zip(states, factors, strict=True)]
    return _floats(factors).reshape(-1, 1), _floats(normed)


def _words(table: Numbers, across: int) -> bytes:
    """Rows padded to whole trees of words; a table of fewer rows than its tree has is padded by the tree."""
    padded = np.zeros((len(table), WORD_NUMBERS << across), "<f4")
    padded[:, : table.shape[1]] = table
    return padded.tobytes()


def _bits(numbers: Numbers) -> list[int]:
    return [int(bits) for bits in np.ascontiguousarray(numbers, np.float32).view(np.uint32)]


def _floats(bits: object) -> Numbers:
    return np.array(bits, np.uint32).view(np.float32)
