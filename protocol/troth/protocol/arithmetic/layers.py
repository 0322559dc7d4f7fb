"""All rows of a layer at once, bit for bit those of ``steps``, at about the speed of a float64 pass.

Everything is computed in float64 with a bound on how far it is from the exact value. Where both ends of that interval
round alike, that is the element; for the few others ``steps`` decides. Bounds hold for any order of summation and with
or without fused steps, so that results do not depend on the machine's matrix library (Higham, Accuracy and Stability of
Numerical Algorithms, section 3.1; sums and products that are exact in two numbers by Knuth's two-sum).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from troth.protocol.arithmetic import doubles, functions, steps
from troth.protocol.arithmetic.operations import (
    MOST_POSITIONS,
    Activation,
    LayerShape,
    Operation,
    Slice,
    StepKind,
    WeightSlice,
    first_position,
    number_format,
    step,
    width,
)
from troth.protocol.arithmetic.rounding import UNIT_BITS, round_exact, round_ratio, units
from troth.protocol.errors import InvalidStep
from troth.protocol.exact_numbers import NumberFormat

Numbers = NDArray[np.float32]
Doubles = NDArray[np.float64]
_SPANS = frozenset({Operation.SCORES, Operation.CAPPED_SCORES, Operation.EXPONENTIALS, Operation.PROBABILITIES})
"""Rows with a number for each head and each position that is looked back at."""
_SHARE = 2.0**-53
"""What one operation of float64 loses of its result at most."""


@dataclass(frozen=True, slots=True)
class LayerRows:
    """The rows of one layer at positions 0 to ``positions`` (without), and the weights that they were computed with."""

    shape: LayerShape
    positions: int
    weights: Mapping[str, Numbers]
    numbers: Mapping[Operation, Numbers]

    def row(self, operation: Operation, position: int) -> NDArray[np.uint32]:
        """The bits of one row, of shape (width,)."""
        if not 0 <= position < self.positions or operation not in self.numbers:
            raise InvalidStep("No such row was computed", (operation.name, position), "Compute the layer further.")
        row = self.numbers[operation][position]
        if operation in _SPANS:
            row = row[:, first_position(self.shape, position) : position + 1]
        return np.ascontiguousarray(row).reshape(-1).view(np.uint32)

    def operand(self, place: Slice) -> list[int]:
        """The bits of the numbers of a slice."""
        if isinstance(place, WeightSlice):
            row = np.atleast_2d(self.weights[place.tensor])[place.row, place.start : place.stop]
            return _bits(row)
        return [
            int(bits)
            for position in range(place.first, place.last)
            for bits in self.row(place.operation, position)[place.start : place.stop]
        ]

    def element(self, operation: Operation, position: int, element: int) -> int:
        """One element by its step, from the rows that it reads; equals the row's own unless a row was changed."""
        made = step(self.shape, operation, position, element)
        return steps.evaluate(made.kind, [self.operand(place) for place in made.slices], made.constants, made.format)


def layer_rows(shape: LayerShape, weights: Mapping[str, Numbers], states: Numbers) -> LayerRows:
    """All rows of a layer.

    Args:
        shape: how the layer computes.
        weights: its tensors by full name, float32; those of a bfloat16 layer already rounded.
        states: the layer's input, of shape (positions, hidden), from position 0 on.

    Raises:
        InvalidStep: arrays of other shapes, or more positions than are checked.
    """
    if states.ndim != 2 or states.shape[1] != shape.hidden or not 1 <= len(states) <= MOST_POSITIONS:
        raise InvalidStep(f"States have {shape.hidden} columns", states.shape, "Take the layer's input.")
    clean = {name: _clean(np.asarray(tensor, np.float32)) for name, tensor in weights.items()}
    return _Layer(shape, clean, _clean(states.astype(np.float32, copy=False))).computed()


class _Layer:
    """The rows while they are computed."""

    def __init__(self, shape: LayerShape, weights: Mapping[str, Numbers], states: Numbers) -> None:
        self.shape, self.weights, self.positions = shape, weights, len(states)
        self.numbers: dict[Operation, Numbers] = {Operation.INPUT: states}
        ends = np.arange(self.positions)
        first = np.array([first_position(shape, position) for position in range(self.positions)])
        self.seen = (ends[None, :] <= ends[:, None]) & (ends[None, :] >= first[:, None])
        """Of shape (positions, positions): whether the first looks back at the second."""

    def computed(self) -> LayerRows:
        with np.errstate(all="ignore"):
            self._attention()
            self._feed_forward()
        return LayerRows(self.shape, self.positions, self.weights, self.numbers)

    def _attention(self) -> None:
        shape = self.shape
        self._norm(Operation.INPUT, Operation.INPUT_FACTOR, Operation.INPUT_NORM, "input_layernorm.weight")
        for made, name in ((Operation.QUERY, "q_proj"), (Operation.KEY, "k_proj"), (Operation.VALUE, "v_proj")):
            self._product(Operation.INPUT_NORM, made, f"self_attn.{name}", biased=shape.biased)
        if shape.head_norms:
            self._norm(Operation.QUERY, Operation.QUERY_FACTORS, Operation.QUERY_NORM, "self_attn.q_norm.weight")
            self._norm(Operation.KEY, Operation.KEY_FACTORS, Operation.KEY_NORM, "self_attn.k_norm.weight")
        self._turns()
        self._rotate(Operation.QUERY_NORM if shape.head_norms else Operation.QUERY, Operation.ROTATED_QUERY)
        self._rotate(Operation.KEY_NORM if shape.head_norms else Operation.KEY, Operation.ROTATED_KEY)
        self._scores()
        self._probabilities()
        self._attend()
        self._product(Operation.ATTENDED, Operation.ATTENTION_OUTPUT, "self_attn.o_proj", biased=shape.output_biased)
        last = Operation.ATTENTION_OUTPUT
        if shape.framed:
            name = "post_attention_layernorm.weight"
            self._norm(last, Operation.ATTENTION_FACTOR, Operation.ATTENTION_NORM, name)
            last = Operation.ATTENTION_NORM
        self._add(Operation.INPUT, last, Operation.MIDDLE)

    def _feed_forward(self) -> None:
        before = "pre_feedforward_layernorm" if self.shape.framed else "post_attention_layernorm"
        self._norm(Operation.MIDDLE, Operation.FEED_FACTOR, Operation.FEED_NORM, f"{before}.weight")
        self._product(Operation.FEED_NORM, Operation.GATE, "mlp.gate_proj")
        self._product(Operation.FEED_NORM, Operation.UP, "mlp.up_proj")
        self._gate()
        self._product(Operation.GATED, Operation.DOWN, "mlp.down_proj")
        last = Operation.DOWN
        if self.shape.framed:
            self._norm(last, Operation.DOWN_FACTOR, Operation.DOWN_NORM, "post_feedforward_layernorm.weight")
            last = Operation.DOWN_NORM
        self._add(Operation.MIDDLE, last, Operation.OUTPUT)

    def _weight(self, suffix: str) -> Numbers:
        try:
            return self.weights[self.shape.prefix + suffix]
        except KeyError:
            raise InvalidStep("The layer's weights lack a tensor", suffix, "Take all of the layer's tensors.") from None

    def _keep(self, made: Operation, value: Doubles, error: Doubles) -> None:
        """The rows of an operation from approximate values and their bounds."""

        def decide(place: tuple[int, ...]) -> int:
            position, element = place[0], self._element(made, place)
            step_ = step(self.shape, made, position, element)
            return steps.evaluate(
                step_.kind, [self._operand(one) for one in step_.slices], step_.constants, step_.format
            )

        self.numbers[made] = settled(value, error, number_format(self.shape, made), decide)

    def _element(self, made: Operation, place: tuple[int, ...]) -> int:
        position = place[0]
        if made in _SPANS:
            first = first_position(self.shape, position)
            return place[1] * (position + 1 - first) + place[2] - first
        return place[1]

    def _operand(self, place: Slice) -> list[int]:
        return LayerRows(self.shape, self.positions, self.weights, self.numbers).operand(place)

    def _norm(self, read: Operation, factors: Operation, made: Operation, suffix: str) -> None:
        """Over whole rows, or over each head's part of them."""
        rows = self.numbers[read].astype(np.float64)
        groups = width(self.shape, factors, 0)
        parts = rows.reshape(self.positions, groups, -1)
        count = parts.shape[2]
        epsilon = float(np.uint32(self.shape.epsilon).view(np.float32))
        factor = 1 / np.sqrt((parts * parts).sum(axis=2) / count + epsilon)
        self._keep(factors, factor, factor * ((count + 8) * _SHARE))
        weight = plain = self._weight(suffix)
        if self.shape.shifted:
            total, lost = doubles.two_sum(plain.astype(np.float64), np.ones(len(plain)))
            weight = settled(total, np.abs(lost), NumberFormat.FLOAT32, lambda place: _sum(plain[place], 1.0))
        exact = (parts * self.numbers[factors][:, :, None].astype(np.float64)).reshape(self.positions, groups, -1)
        value = (exact * weight.astype(np.float64).reshape(1, 1, -1)).reshape(self.positions, -1)
        self._keep(made, value, np.abs(value) * _SHARE)

    def _product(self, read: Operation, made: Operation, name: str, *, biased: bool = False) -> None:
        rows, matrix = self.numbers[read].astype(np.float64), self._weight(f"{name}.weight").astype(np.float64)
        value, error = _dot(rows, matrix)
        if biased:
            bias = self._weight(f"{name}.bias").astype(np.float64)
            value = value + bias
            error = error + np.abs(value) * _SHARE
        self._keep(made, value, error)

    def _turns(self) -> None:
        for made, kind in ((Operation.COSINES, StepKind.COSINE), (Operation.SINES, StepKind.SINE)):
            made_format = number_format(self.shape, made)
            bits = [
                [_turn(kind, position, frequency, made_format) for frequency in self.shape.frequencies]
                for position in range(self.positions)
            ]
            self.numbers[made] = np.array(bits, np.uint32).view(np.float32)

    def _rotate(self, read: Operation, made: Operation) -> None:
        half = self.shape.head_width // 2
        rows = self.numbers[read].astype(np.float64).reshape(self.positions, -1, 2, half)
        cosines = self.numbers[Operation.COSINES].astype(np.float64)[:, None, :]
        sines = self.numbers[Operation.SINES].astype(np.float64)[:, None, :]
        first, first_lost = doubles.two_sum(rows[:, :, 0] * cosines, -rows[:, :, 1] * sines)
        second, second_lost = doubles.two_sum(rows[:, :, 1] * cosines, rows[:, :, 0] * sines)
        value = np.stack([first, second], axis=2).reshape(self.positions, -1)
        lost = np.stack([first_lost, second_lost], axis=2).reshape(self.positions, -1)
        self._keep(made, value, np.abs(lost))

    def _heads(self, operation: Operation) -> Doubles:
        """Of shape (heads, positions, head_width); heads that share keys or values have them each."""
        rows = self.numbers[operation].astype(np.float64).reshape(self.positions, -1, self.shape.head_width)
        return np.repeat(rows, self.shape.heads // rows.shape[1], axis=1).transpose(1, 0, 2)

    def _over_seen(self, value: Doubles, fill: float) -> Doubles:
        return np.where(self.seen[:, None, :], value, fill)

    def _scores(self) -> None:
        queries, keys = self._heads(Operation.ROTATED_QUERY), self._heads(Operation.ROTATED_KEY)
        value, error = _dot(queries, keys)
        scale = float(np.uint32(self.shape.scale).view(np.float32))
        value, error = (value * scale).transpose(1, 0, 2), (error * abs(scale)).transpose(1, 0, 2)
        self._keep(Operation.SCORES, self._over_seen(value, 0), self._over_seen(error + np.abs(value) * _SHARE, 0))
        if not self.shape.cap:
            return
        scores, cap = self.numbers[Operation.SCORES], np.uint32(self.shape.cap).view(np.float32)
        ratio = scores.astype(np.float64) / float(cap)
        ratios = settled(
            ratio, np.abs(ratio) * _SHARE, NumberFormat.FLOAT32, lambda place: _ratio(scores[place], float(cap))
        )
        value, error = doubles.hyperbolic_tangent(ratios.astype(np.float64))
        inner = settled(
            value, error, NumberFormat.FLOAT32, lambda place: functions.hyperbolic_tangent(_bit(ratios[place]))
        )
        value = inner.astype(np.float64) * float(cap)
        self._keep(Operation.CAPPED_SCORES, value, np.zeros_like(value))

    def _probabilities(self) -> None:
        scores = self.numbers[Operation.CAPPED_SCORES if self.shape.cap else Operation.SCORES].astype(np.float64)
        maxima = self._over_seen(scores, -np.inf).max(axis=2)
        self._keep(Operation.MAXIMA, maxima, np.zeros_like(maxima))
        difference, lost = doubles.two_sum(scores, -np.broadcast_to(maxima[:, :, None], scores.shape))
        difference, lost = self._over_seen(difference, 0), self._over_seen(lost, 0)
        differences = settled(
            difference,
            np.abs(lost),
            NumberFormat.FLOAT32,
            lambda place: _sum(scores[place], -maxima[place[:2]]),
        )
        value, error = doubles.exponential(differences.astype(np.float64))
        self._keep(Operation.EXPONENTIALS, self._over_seen(value, 0), self._over_seen(error, 0))
        exponentials = self.numbers[Operation.EXPONENTIALS].astype(np.float64)
        total = exponentials.sum(axis=2)
        self._keep(Operation.SUMS, total, total * (self.positions * _SHARE))
        value = exponentials / self.numbers[Operation.SUMS].astype(np.float64)[:, :, None]
        self._keep(Operation.PROBABILITIES, self._over_seen(value, 0), self._over_seen(value * _SHARE, 0))

    def _attend(self) -> None:
        probabilities = self.numbers[Operation.PROBABILITIES].astype(np.float64).transpose(1, 0, 2)
        values = self._heads(Operation.VALUE)
        # What is not looked back at counts as zero even where it is no number.
        finite = np.isfinite(values)
        value, error = _dot(probabilities, np.where(finite, values, 0).transpose(0, 2, 1))
        if not finite.all():
            broken = (self.seen[None, :, :, None] & ~finite[:, None, :, :]).any(axis=2)
            value = np.where(broken, np.nan, value)
        value, error = value.transpose(1, 0, 2), error.transpose(1, 0, 2)
        self._keep(Operation.ATTENDED, value.reshape(self.positions, -1), error.reshape(self.positions, -1))

    def _add(self, one: Operation, other: Operation, made: Operation) -> None:
        value, lost = doubles.two_sum(self.numbers[one].astype(np.float64), self.numbers[other].astype(np.float64))
        self._keep(made, value, np.abs(lost))

    def _gate(self) -> None:
        gates, kind = self.numbers[Operation.GATE], self.shape.activation
        approximate = doubles.silu if kind is Activation.SILU else doubles.gelu_tanh
        value, error = approximate(gates.astype(np.float64))
        inner = settled(
            value, error, NumberFormat.FLOAT32, lambda place: functions.activation(_bit(gates[place]), kind)
        )
        value = inner.astype(np.float64) * self.numbers[Operation.UP].astype(np.float64)
        self._keep(Operation.GATED, value, np.zeros_like(value))


def settled(value: Doubles, error: Doubles, kept: NumberFormat, decide: Callable[[tuple[int, ...]], int]) -> Numbers:
    """Values rounded to a number format, where they are known up to an error; ``decide`` gives the bits of those that
    are not decided by it, by their place. An error of zero means that the value is exact."""
    margin = np.where(error == 0, 0, error * (1 + 2.0**-40) + np.abs(value) * 2.0**-52 + 2.0**-1060)
    low, high = rounded(value - margin, kept), rounded(value + margin, kept)
    undecided = (low != high) & ~(np.isnan(low) & np.isnan(high))
    for place in zip(*np.nonzero(undecided), strict=True):
        at = tuple(int(index) for index in place)
        low[at] = np.uint32(decide(at)).view(np.float32)
    return low


def rounded(value: Doubles, kept: NumberFormat) -> Numbers:
    """Each of float64 values rounded once; beyond the largest number it is none, and a zero is +0."""
    if kept is NumberFormat.BFLOAT16:
        place = np.maximum(np.frexp(value)[1] - 8, -133)
        value = np.ldexp(np.rint(np.ldexp(value, -place)), place)
    with np.errstate(over="ignore"):
        return _clean(value.astype(np.float32)) + np.float32(0)


def _clean(numbers: Numbers) -> Numbers:
    """An infinity is no number, either."""
    if np.isfinite(numbers).all():
        return numbers
    return np.where(np.isfinite(numbers), numbers, np.float32(np.nan)).astype(np.float32, copy=False)


def _dot(rows: Doubles, matrix: Doubles) -> tuple[Doubles, Doubles]:
    """rows @ matrix.T and a bound on its errors; products of float32 numbers are exact in float64."""
    value = rows @ np.swapaxes(matrix, -1, -2)
    sizes = _lengths(rows)[..., :, None] * _lengths(matrix)[..., None, :]
    return value, sizes * ((rows.shape[-1] + 2) * _SHARE * (1 + 2.0**-30))


def _lengths(rows: Doubles) -> Doubles:
    """Of each row; the squares of a whole matrix are not written down first."""
    lengths: Doubles = np.sqrt(np.vecdot(rows, rows))
    return lengths


def _bit(number: np.float32) -> int:
    return int(np.float32(number).view(np.uint32))


def _bits(numbers: Numbers) -> list[int]:
    return [int(bits) for bits in np.ascontiguousarray(numbers).view(np.uint32)]


def _sum(one: float, other: float) -> int:
    """[one + other]32 of two float32 numbers."""
    total = units(_bit(np.float32(one))) + units(_bit(np.float32(other)))
    return round_exact(total, -UNIT_BITS, NumberFormat.FLOAT32)


def _ratio(one: float, other: float) -> int:
    return round_ratio(units(_bit(np.float32(one))), units(_bit(np.float32(other))), 0, NumberFormat.FLOAT32)


@lru_cache(maxsize=1 << 18)
def _turn(kind: StepKind, position: int, frequency: int, kept: NumberFormat) -> int:
    return steps.evaluate(kind, (), (position, frequency), kept)
