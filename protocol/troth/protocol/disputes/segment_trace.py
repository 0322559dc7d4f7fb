"""The trace of a segment by canonical arithmetic: what an honest side of a dispute commits to, and compares with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

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


class KeptLayers(Protocol):
    """What was computed of a trace before, so that a process that was killed goes on behind the last whole layer."""

    def kept(self, layer: int) -> ComputedLayer | None:
        """A layer's end; None where it was not computed."""

    def keep(self, layer: int, computed: ComputedLayer) -> None:
        """Note that a layer is computed."""


class ComputedLayer(NamedTuple):
    """What stays of a layer: its last rows, of shape (positions, hidden), and the roots of its tensors."""

    output: Numbers
    roots: tuple[Hash32, ...]


class NoneKept:
    """Nothing outlasts the process."""

    def kept(self, layer: int) -> ComputedLayer | None:
        """None."""
        del layer
        return None

    def keep(self, layer: int, computed: ComputedLayer) -> None:
        """Nothing is kept."""


class SegmentTrace:
    """All numbers of a segment at positions 0 to ``layout.position``.

    What each layer read is held, and the rows of one layer alone: those of another are computed again when they are
    asked for. So a trace of thirty layers takes the memory of one.
    """

    def __init__(
        self,
        layout: Layout,
        weights: LayerWeights,
        read: Sequence[Numbers],
        norm: tuple[Numbers, Numbers] | None,
        roots: Sequence[Hash32],
    ) -> None:
        """``read``: what each layer read, and what the last one gave; ``norm``: the last factor and norm; ``roots``: of
        the layers' tensors."""
        self.layout = layout
        self.norm = norm
        self._weights, self._read = weights, tuple(read)
        self._roots = list(roots)
        self._rows: tuple[int, LayerRows] | None = None
        self._last: tuple[int, WordTree] | None = None

    @cached_property
    def top(self) -> WordTree:
        """Over the roots of all tensors."""
        behind = (self._made(tensor).root for tensor in range(len(self._roots), self.layout.count))
        return WordTree(b"".join([*self._roots, *behind]), self.layout.depth)

    def tensor(self, number: int) -> WordTree:
        """One tensor's tree; that of the last one asked for is kept."""
        if self._last is None or self._last[0] != number:
            self._last = number, self._made(number)
        return self._last[1]

    @property
    def rows(self) -> Numbers:
        """What the segment gives, of shape (position + 1, hidden)."""
        return self.norm[1] if self.norm is not None else self._read[-1]

    @property
    def last_row(self) -> Numbers:
        """What the segment gives at the position in dispute, of shape (hidden,)."""
        row: Numbers = self.rows[self.layout.position]
        return row

    def furthest(self, signed: Numbers) -> int | None:
        """The element of the signed row that is too far from the trace's; None: none is."""
        return furthest(signed, self.last_row)

    def layer(self, number: int) -> LayerRows:
        """All rows of a layer."""
        if self._rows is None or self._rows[0] != number:
            shape = self.layout.model.layer(number)
            self._rows = number, layer_rows(shape, self._weights(number), self._read[number - self.layout.first])
        return self._rows[1]

    def _made(self, tensor: int) -> WordTree:
        layer, operation = self.layout.where(tensor)
        if not self.layout.exists(tensor):
            return _tree(self.layout, tensor, np.zeros((1, 1), np.float32))
        if layer == len(self.layout.model.pattern):
            return _tree(self.layout, tensor, self._norm_table(operation))
        return _tree(self.layout, tensor, _table(self.layer(layer), operation, self.layout.position))

    def _norm_table(self, operation: Operation) -> Numbers:
        assert self.norm is not None
        if operation is Operation.INPUT:
            return self._read[-1]
        return self.norm[0 if operation is Operation.INPUT_FACTOR else 1]


def segment_trace(
    layout: Layout,
    weights: LayerWeights,
    states: Numbers,
    norm: Numbers | None,
    kept: KeptLayers | None = None,
) -> SegmentTrace:
    """Compute everything, layer after layer.

    Args:
        weights: of each layer, asked for one after the other.
        states: what the segment reads, of shape (position + 1, hidden): of the first one embeddings, scaled.
        norm: weights of the last norm, where the model ends with the segment.
        kept: what was computed before.

    Raises:
        InvalidStep: weights or states of other shapes.
    """
    if states.shape[0] != layout.position + 1 or (norm is None) == layout.is_last:
        raise InvalidStep("The states, or the last norm, are not the segment's", states.shape, "Take what it read.")
    journal = kept or NoneKept()
    # A zero is +0 everywhere.
    read, roots = [states + np.float32(0)], list[Hash32]()
    for layer in range(layout.first, layout.end):
        done = journal.kept(layer)
        if done is None:
            done = _computed(layout, layer, weights(layer), read[-1])
            journal.keep(layer, done)
        read.append(done.output)
        roots += done.roots
    return SegmentTrace(layout, weights, read, None if norm is None else _normed(layout, read[-1], norm), roots)


def segment_rows(layout: Layout, weights: LayerWeights, states: Numbers, norm: Numbers | None) -> Numbers:
    """What a segment gives at all positions up to the layout's, without a trace; arguments as ``segment_trace``."""
    states = states + np.float32(0)
    for layer in range(layout.first, layout.end):
        states = layer_rows(layout.model.layer(layer), weights(layer), states).numbers[Operation.OUTPUT]
    return states if norm is None else _normed(layout, states, norm)[1]


def furthest(signed: Numbers, canonical: Numbers) -> int | None:
    """The element of a signed row that is too far from the canonical one, by the contract's steps; None: none is."""
    with np.errstate(all="ignore"):
        distances = np.abs(signed.astype(np.float64) - canonical)
    candidates = np.argsort(-np.where(np.isfinite(distances), distances, np.inf))[:2]
    return next((int(at) for at in candidates if is_far(signed, canonical, int(at))), None)


def _computed(layout: Layout, layer: int, weights: Mapping[str, Numbers], states: Numbers) -> ComputedLayer:
    rows = layer_rows(layout.model.layer(layer), weights, states)
    roots = []
    for operation in Operation:
        tensor, table = layout.tensor(layer, operation), np.zeros((1, 1), np.float32)
        if layout.exists(tensor):
            table = _table(rows, operation, layout.position)
        roots.append(_tree(layout, tensor, table).root)
    return ComputedLayer(rows.numbers[Operation.OUTPUT], tuple(roots))


def _tree(layout: Layout, tensor: int, table: Numbers) -> WordTree:
    rows, across = layout.levels(tensor)
    return WordTree(_words(table, across), rows + across)


def _table(rows: LayerRows, operation: Operation, last: int) -> Numbers:
    """Rows as they are committed to."""
    if operation is Operation.VALUE:
        return np.ascontiguousarray(rows.numbers[operation].T)
    found = [rows.row(operation, position).view(np.float32) for position in range(last + 1)]
    table = np.zeros((len(found), max(len(row) for row in found)), np.float32)
    for row, numbers in zip(table, found, strict=True):
        row[: len(numbers)] = numbers
    return table


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
