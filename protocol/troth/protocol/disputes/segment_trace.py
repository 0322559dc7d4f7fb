"""The trace of a segment by canonical arithmetic: what an honest side of a dispute commits to, and compares with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from troth.protocol.arithmetic import steps
from troth.protocol.arithmetic.layers import LayerRows, layer_rows
from troth.protocol.arithmetic.operations import Operation, RowSlice, Slice, StepKind, step
from troth.protocol.disputes import sums
from troth.protocol.disputes.layout import ONE, WORD_NUMBERS, Layout, NumberPlace
from troth.protocol.disputes.nudges import Nudge
from troth.protocol.disputes.tolerance import furthest, most_moved, movement
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
        return WordTree(b"".join(self.roots), self.layout.depth)

    @cached_property
    def roots(self) -> tuple[Hash32, ...]:
        """Of all tensors."""
        behind = (self._made(tensor).root for tensor in range(len(self._roots), self.layout.count))
        return (*self._roots, *behind)

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

    def furthest(self, signed: Numbers, moved: int | None = None) -> int | None:
        """The element of the signed row that is too far from the trace's; None: none is. See ``tolerance.furthest``."""
        return furthest(signed, self.last_row, moved)

    def parts(self, place: NumberPlace) -> tuple[int, ...]:
        """The parts of a long sum; none where the number is computed at once."""
        if place.operation is Operation.INPUT:
            return ()
        made = step(self.layout.model.layer(place.layer), place.operation, place.position, place.element)
        found = []
        for index in range(sums.parts_of(made)):
            kind, slices = sums.part_of(made, index)
            found.append(steps.add(kind, 0, [self._operand(place.layer, one) for one in slices]))
        return tuple(found)

    def _operand(self, layer: int, slice_: Slice) -> list[int]:
        if layer < len(self.layout.model.pattern):
            return self.layer(layer).operand(slice_)
        # The last norm's factor is a sum over what it reads.
        assert isinstance(slice_, RowSlice)
        return _bits(self._read[-1][slice_.first, slice_.start : slice_.stop])

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


class DoubledTrace:
    """A trace and a nudged one behind it, as they are committed to where the accused defends itself."""

    def __init__(self, plain: SegmentTrace, nudged: SegmentTrace) -> None:
        self.plain, self.nudged = plain, nudged
        self.layout = replace(plain.layout, doubled=True)

    @cached_property
    def top(self) -> WordTree:
        """Over the roots of all tensors of both."""
        return WordTree(b"".join([*self.plain.roots, *self.nudged.roots]), self.layout.depth)

    def tensor(self, number: int) -> WordTree:
        """One tensor's tree."""
        single = self.layout.single
        return self.plain.tensor(number) if number < single else self.nudged.tensor(number - single)

    def parts(self, place: NumberPlace) -> tuple[int, ...]:
        """The parts of a long sum."""
        return (self.nudged if place.nudged else self.plain).parts(place._replace(nudged=False))

    @property
    def most_moved(self) -> int:
        """The element of the last row that the nudge moves the furthest."""
        return most_moved(self.nudged.last_row, self.plain.last_row)

    def furthest(self, signed: Numbers, moved: int) -> int | None:
        """The element of the signed row that is too far though the nudge moves the element ``moved``; None: none is."""
        found = movement(self.nudged.last_row, self.plain.last_row, moved)
        return self.plain.furthest(signed, found)


def segment_trace(  # noqa: PLR0917
    layout: Layout,
    weights: LayerWeights,
    states: Numbers,
    norm: Numbers | None,
    kept: KeptLayers | None = None,
    nudge: Nudge | None = None,
) -> SegmentTrace:
    """Compute everything, layer after layer.

    Args:
        weights: of each layer, asked for one after the other.
        states: what the segment reads, of shape (position + 1, hidden): of the first one embeddings, scaled.
        norm: weights of the last norm, where the model ends with the segment.
        kept: what was computed before.
        nudge: of a nudged trace; ``states`` are the plain one's.

    Raises:
        InvalidStep: weights or states of other shapes.
    """
    if states.shape[0] != layout.position + 1 or (norm is None) == layout.is_last:
        raise InvalidStep("The states, or the last norm, are not the segment's", states.shape, "Take what it read.")
    journal = kept or NoneKept()
    # A zero is +0 everywhere.
    read, roots = [_moved(layout, nudge, layout.first, states + np.float32(0))], list[Hash32]()
    for layer in range(layout.first, layout.end):
        done = journal.kept(layer)
        if done is None:
            done = _computed(layout, layer, weights(layer), read[-1])
            journal.keep(layer, done)
        read.append(_moved(layout, nudge, layer + 1, done.output))
        roots += done.roots
    return SegmentTrace(layout, weights, read, None if norm is None else _normed(layout, read[-1], norm), roots)


def segment_rows(
    layout: Layout, weights: LayerWeights, states: Numbers, norm: Numbers | None, nudge: Nudge | None = None
) -> Numbers:
    """What a segment gives at all positions up to the layout's, without a trace; arguments as ``segment_trace``."""
    states = _moved(layout, nudge, layout.first, states + np.float32(0))
    for layer in range(layout.first, layout.end):
        rows = layer_rows(layout.model.layer(layer), weights(layer), states)
        states = _moved(layout, nudge, layer + 1, rows.numbers[Operation.OUTPUT])
    return states if norm is None else _normed(layout, states, norm)[1]


def _moved(layout: Layout, nudge: Nudge | None, layer: int, states: Numbers) -> Numbers:
    """What a layer reads; what a segment gives to another one is not moved."""
    if nudge is None or (layer == layout.end and not layout.is_last):
        return states
    return nudge.moved(layer, states)


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
