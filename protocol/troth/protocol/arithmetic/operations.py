"""What a decoder layer computes at one position, operation by operation, and what each number is computed from.

An operation gives a row of numbers at each position. Every number of a row, an element, is one step: it is read from
named slices of earlier rows and of the weights, and is the correctly rounded value of an exact real expression over
them. So it depends on no order of summation, and one step can be checked alone. The contracts' library ``Arithmetic``
has the same expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from troth.protocol.errors import InvalidStep
from troth.protocol.exact_numbers import NumberFormat

NOT_A_NUMBER = 0x7FC00000
"""The one result that is no number, as float32 bits; its upper half is the one of bfloat16."""
SUM_UNIT_BITS, SUM_BYTES = 298, 96
"""Between the parts of a FACTOR, PRODUCT, SCORE or SUM stands the exact sum so far, before bias, scale, mean or root:
an integer in units of 2**-298 (each product of two float32 numbers is one), two's complement, big-endian. Between those
of a MAXIMUM stands the largest number so far."""
NO_SUM = -(1 << 767)
"""Stands for the sum so far once a term was no finite number."""
MOST_WIDTH = 1 << 16
"""Columns of a state, a feed-forward row, or all heads together."""
MOST_POSITIONS = 1 << 20
MOST_HEADS = 1 << 8


class Operation(IntEnum):
    """The rows of a layer, in the order in which they are computed."""

    INPUT = 0
    """The layer's input, which nothing in the layer computes."""
    INPUT_FACTOR = 1
    INPUT_NORM = 2
    QUERY = 3
    KEY = 4
    VALUE = 5
    QUERY_FACTORS = 6
    QUERY_NORM = 7
    KEY_FACTORS = 8
    KEY_NORM = 9
    COSINES = 10
    SINES = 11
    ROTATED_QUERY = 12
    ROTATED_KEY = 13
    SCORES = 14
    CAPPED_SCORES = 15
    MAXIMA = 16
    EXPONENTIALS = 17
    SUMS = 18
    PROBABILITIES = 19
    ATTENDED = 20
    ATTENTION_OUTPUT = 21
    ATTENTION_FACTOR = 22
    ATTENTION_NORM = 23
    MIDDLE = 24
    """The state between attention and feed-forward part."""
    FEED_FACTOR = 25
    FEED_NORM = 26
    GATE = 27
    UP = 28
    GATED = 29
    DOWN = 30
    DOWN_FACTOR = 31
    DOWN_NORM = 32
    OUTPUT = 33


class StepKind(IntEnum):
    """The expressions by which elements are computed; the values are the contract's.

    [r] is r rounded to the step's number format, to nearest, ties to even; [r]32 is r rounded to float32. Where an
    operand is no finite number, or a rounded one would be beyond the largest, the result is NOT_A_NUMBER and nothing
    else. A result of zero is +0, whatever the operands' signs.
    """

    FACTOR = 0
    """[1 / sqrt(sum x**2 / n + epsilon)]; x: the first slice; constant: epsilon."""
    NORM = 1
    """[x s w], or [x s [1 + w]32] where the constant is one; slices: x, s, w, one number each."""
    PRODUCT = 2
    """[sum a b + sum c]; slices: a, b of one length, and perhaps one number c."""
    COSINE = 3
    """[[cos [t f]32]32]; constants: the position t as an integer, the frequency f from 0 to 1."""
    SINE = 4
    """[[sin [t f]32]32]; constants as above."""
    ROTATION = 5
    """[a c - b s]; slices: a, c, b, s, one number each. Constant one: [a c + b s]."""
    SCORE = 6
    """[scale sum q k]; slices: q, k; constant: scale."""
    CAP = 7
    """[cap [tanh [x / cap]32]32]; slice: x; constant: cap."""
    MAXIMUM = 8
    """The largest number of the slice."""
    EXPONENTIAL = 9
    """[[exp [x - m]32]32]; slices: x, m, one number each."""
    SUM = 10
    """[sum x]; slice: x."""
    QUOTIENT = 11
    """[x / z]; slices: x, z, one number each."""
    ADDITION = 12
    """[x + y]; slices: x, y, one number each."""
    GATING = 13
    """[[act x]32 y]; slices: x, y, one number each; constant: the Activation."""


class Activation(IntEnum):
    """What the gate passes through; the values are the contract's."""

    SILU = 0
    """x / (1 + exp(-x))."""
    GELU_TANH = 1
    """x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x**3))), which is x (1 + tanh(...)) / 2; the decimal is exact."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """All that says how one layer computes, apart from its weights. Real numbers are float32 bits, 0 to 2**32 - 1.

    ``prefix`` names its tensors ("model.layers.7."). ``window`` is how many positions a position looks back at, itself
    included; 0: all. ``frequencies`` are those of the rotary embedding, ``head_width / 2`` of them. ``cap`` is 0 where
    scores have no soft cap. ``shifted``: norms multiply by 1 + weight. ``framed``: attention and feed-forward part
    have a norm behind them as well. ``format``: of rows between operations; scores and what follows from them up to
    probabilities, and the factors of norms, are float32 in each.
    """

    prefix: str
    format: NumberFormat
    hidden: int
    heads: int
    key_heads: int
    head_width: int
    intermediate: int
    window: int
    epsilon: int
    scale: int
    cap: int
    frequencies: tuple[int, ...]
    activation: Activation
    biased: bool
    output_biased: bool
    head_norms: bool
    shifted: bool
    framed: bool

    def __post_init__(self) -> None:
        widths = (self.hidden, self.heads * self.head_width, self.intermediate)
        divides = 1 <= self.key_heads <= self.heads <= MOST_HEADS and self.heads % self.key_heads == 0
        if not all(1 <= width <= MOST_WIDTH for width in widths) or not divides or self.head_width % 2:
            raise InvalidStep("A layer of these sizes is not checked", (*widths, self.key_heads), "See LayerShape.")
        if any(not 0 <= frequency <= 0x3F800000 for frequency in self.frequencies):
            raise InvalidStep("A frequency is from 0 to 1", max(self.frequencies), "Check the rotary embedding.")
        if len(self.frequencies) != self.head_width // 2 or not 0 <= self.window <= MOST_POSITIONS:
            raise InvalidStep("A rotary embedding has half a head's frequencies", len(self.frequencies), "Check it.")


@dataclass(frozen=True, slots=True)
class RowSlice:
    """Elements ``start`` to ``stop`` (without) of an operation's rows at positions ``first`` to ``last`` (without)."""

    operation: Operation
    first: int
    last: int
    start: int
    stop: int

    @property
    def count(self) -> int:
        """How many numbers it holds, in order of position and then element."""
        return (self.last - self.first) * (self.stop - self.start)


@dataclass(frozen=True, slots=True)
class WeightSlice:
    """Elements ``start`` to ``stop`` (without) of a row of a tensor; a vector is a tensor of one row."""

    tensor: str
    row: int
    start: int
    stop: int

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        return self.stop - self.start


Slice = RowSlice | WeightSlice


@dataclass(frozen=True, slots=True)
class Step:
    """How one element is computed: the expression, where its operands lie, its constants and its number format."""

    kind: StepKind
    slices: tuple[Slice, ...]
    constants: tuple[int, ...]
    format: NumberFormat


_HEAD_NORMS = frozenset({Operation.QUERY_FACTORS, Operation.QUERY_NORM, Operation.KEY_FACTORS, Operation.KEY_NORM})
_FRAME = frozenset({Operation.ATTENTION_FACTOR, Operation.ATTENTION_NORM, Operation.DOWN_FACTOR, Operation.DOWN_NORM})
_WIDE = frozenset(
    {
        Operation.INPUT_FACTOR,
        Operation.QUERY_FACTORS,
        Operation.KEY_FACTORS,
        Operation.SCORES,
        Operation.CAPPED_SCORES,
        Operation.MAXIMA,
        Operation.EXPONENTIALS,
        Operation.SUMS,
        Operation.PROBABILITIES,
        Operation.ATTENTION_FACTOR,
        Operation.FEED_FACTOR,
        Operation.DOWN_FACTOR,
    }
)
"""Rows in float32 whatever the layer's number format."""


def has_operation(shape: LayerShape, operation: Operation) -> bool:
    """Whether a layer of this shape has an operation."""
    if operation in _HEAD_NORMS:
        return shape.head_norms
    if operation in _FRAME:
        return shape.framed
    return bool(shape.cap) or operation is not Operation.CAPPED_SCORES


def number_format(shape: LayerShape, operation: Operation) -> NumberFormat:
    """How the numbers of an operation's rows are stored."""
    return NumberFormat.FLOAT32 if operation in _WIDE else shape.format


def first_position(shape: LayerShape, position: int) -> int:
    """The first position that a position looks back at."""
    return max(0, position - shape.window + 1) if shape.window else 0


def width(shape: LayerShape, operation: Operation, position: int) -> int:
    """How many numbers an operation's row at a position has; raises InvalidStep where there is no such row."""
    if not has_operation(shape, operation) or not 0 <= position < MOST_POSITIONS:
        raise InvalidStep("The layer has no such row", (operation.name, position), "Take one of `operations`.")
    queries, keys = shape.heads * shape.head_width, shape.key_heads * shape.head_width
    span = shape.heads * (position + 1 - first_position(shape, position))
    match operation:
        case Operation.QUERY | Operation.QUERY_NORM | Operation.ROTATED_QUERY | Operation.ATTENDED:
            return queries
        case Operation.KEY | Operation.VALUE | Operation.KEY_NORM | Operation.ROTATED_KEY:
            return keys
        case Operation.QUERY_FACTORS | Operation.MAXIMA | Operation.SUMS:
            return shape.heads
        case Operation.KEY_FACTORS:
            return shape.key_heads
        case Operation.COSINES | Operation.SINES:
            return shape.head_width // 2
        case Operation.SCORES | Operation.CAPPED_SCORES | Operation.EXPONENTIALS | Operation.PROBABILITIES:
            return span
        case Operation.INPUT_FACTOR | Operation.ATTENTION_FACTOR | Operation.FEED_FACTOR | Operation.DOWN_FACTOR:
            return 1
        case Operation.GATE | Operation.UP | Operation.GATED:
            return shape.intermediate
        case _:
            return shape.hidden


def step(shape: LayerShape, operation: Operation, position: int, element: int) -> Step:
    """How one element is computed. Raises InvalidStep for one that does not exist, and for the input's."""
    if not 0 <= element < width(shape, operation, position) or operation is Operation.INPUT:
        raise InvalidStep("No step computes this element", (operation.name, position, element), "Take another.")
    kind, slices, constants = _RULES[operation](_Element(shape, operation, position, element))
    return Step(kind, slices, constants, number_format(shape, operation))


@dataclass(frozen=True, slots=True)
class _Element:
    shape: LayerShape
    operation: Operation
    position: int
    element: int

    def row(self, operation: Operation, start: int, stop: int | None = None) -> RowSlice:
        """A slice at this position; without ``stop`` it is one element."""
        return RowSlice(operation, self.position, self.position + 1, start, start + 1 if stop is None else stop)

    def whole(self, operation: Operation) -> RowSlice:
        return self.row(operation, 0, width(self.shape, operation, self.position))

    def weight(self, suffix: str, row: int, start: int, stop: int) -> WeightSlice:
        return WeightSlice(self.shape.prefix + suffix, row, start, stop)

    @property
    def first(self) -> int:
        return first_position(self.shape, self.position)

    @property
    def span(self) -> int:
        return self.position + 1 - self.first


_Rule = Callable[[_Element], tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]]


def _factor(read: Operation) -> _Rule:
    return lambda at: (StepKind.FACTOR, (at.whole(read),), (at.shape.epsilon,))


def _norm(read: Operation, factor: Operation, suffix: str) -> _Rule:
    return lambda at: (
        StepKind.NORM,
        (at.row(read, at.element), at.row(factor, 0), at.weight(suffix, 0, at.element, at.element + 1)),
        (int(at.shape.shifted),),
    )


def _head_factor(read: Operation) -> _Rule:
    def rule(at: _Element) -> tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]:
        start = at.element * at.shape.head_width
        return StepKind.FACTOR, (at.row(read, start, start + at.shape.head_width),), (at.shape.epsilon,)

    return rule


def _head_norm(read: Operation, factors: Operation, suffix: str) -> _Rule:
    def rule(at: _Element) -> tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]:
        head, column = divmod(at.element, at.shape.head_width)
        slices = at.row(read, at.element), at.row(factors, head), at.weight(suffix, 0, column, column + 1)
        return StepKind.NORM, slices, (int(at.shape.shifted),)

    return rule


def _product(read: Operation, name: str, biased: Callable[[LayerShape], bool] = lambda _: False) -> _Rule:
    def rule(at: _Element) -> tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]:
        entered = at.whole(read)
        slices: tuple[Slice, ...] = (entered, at.weight(f"{name}.weight", at.element, 0, entered.count))
        if biased(at.shape):
            slices = (*slices, at.weight(f"{name}.bias", 0, at.element, at.element + 1))
        return StepKind.PRODUCT, slices, ()

    return rule


def _frequency(kind: StepKind) -> _Rule:
    return lambda at: (kind, (), (at.position, at.shape.frequencies[at.element]))


def _rotation(plain: Operation, normed: Operation) -> _Rule:
    """The first half of a head has a c - b s with b from the second half; the second half a c + b s with b from the
    first."""

    def rule(at: _Element) -> tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]:
        half = at.shape.head_width // 2
        column = at.element % at.shape.head_width
        second = column >= half
        read = normed if at.shape.head_norms else plain
        slices = (
            at.row(read, at.element),
            at.row(Operation.COSINES, column % half),
            at.row(read, at.element - half if second else at.element + half),
            at.row(Operation.SINES, column % half),
        )
        return StepKind.ROTATION, slices, (int(second),)

    return rule


def _score(at: _Element) -> tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]:
    """Element head x span + (position read - first)."""
    head, distance = divmod(at.element, at.span)
    size, read = at.shape.head_width, at.first + distance
    start = head // (at.shape.heads // at.shape.key_heads) * size
    key = RowSlice(Operation.ROTATED_KEY, read, read + 1, start, start + size)
    query = at.row(Operation.ROTATED_QUERY, head * size, (head + 1) * size)
    return StepKind.SCORE, (query, key), (at.shape.scale,)


def _scores(at: _Element) -> Operation:
    return Operation.CAPPED_SCORES if at.shape.cap else Operation.SCORES


def _cap(at: _Element) -> tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]:
    return StepKind.CAP, (at.row(Operation.SCORES, at.element),), (at.shape.cap,)


def _maximum(at: _Element) -> tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]:
    scores = at.row(_scores(at), at.element * at.span, (at.element + 1) * at.span)
    return StepKind.MAXIMUM, (scores,), ()


def _exponential(at: _Element) -> tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]:
    slices = at.row(_scores(at), at.element), at.row(Operation.MAXIMA, at.element // at.span)
    return StepKind.EXPONENTIAL, slices, ()


def _sum(at: _Element) -> tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]:
    read = at.row(Operation.EXPONENTIALS, at.element * at.span, (at.element + 1) * at.span)
    return StepKind.SUM, (read,), ()


def _probability(at: _Element) -> tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]:
    slices = at.row(Operation.EXPONENTIALS, at.element), at.row(Operation.SUMS, at.element // at.span)
    return StepKind.QUOTIENT, slices, ()


def _attended(at: _Element) -> tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]:
    head, column = divmod(at.element, at.shape.head_width)
    weights = at.row(Operation.PROBABILITIES, head * at.span, (head + 1) * at.span)
    value = head // (at.shape.heads // at.shape.key_heads) * at.shape.head_width + column
    values = RowSlice(Operation.VALUE, at.first, at.position + 1, value, value + 1)
    return StepKind.PRODUCT, (weights, values), ()


def _residual(state: Operation, plain: Operation, normed: Operation) -> _Rule:
    return lambda at: (
        StepKind.ADDITION,
        (at.row(state, at.element), at.row(normed if at.shape.framed else plain, at.element)),
        (),
    )


def _gating(at: _Element) -> tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]:
    slices = at.row(Operation.GATE, at.element), at.row(Operation.UP, at.element)
    return StepKind.GATING, slices, (int(at.shape.activation),)


def _feed_norm(at: _Element) -> tuple[StepKind, tuple[Slice, ...], tuple[int, ...]]:
    """With norms behind both parts, the one before the feed-forward part has a name of its own."""
    suffix = "pre_feedforward_layernorm.weight" if at.shape.framed else "post_attention_layernorm.weight"
    return _norm(Operation.MIDDLE, Operation.FEED_FACTOR, suffix)(at)


_RULES: dict[Operation, _Rule] = {
    Operation.INPUT_FACTOR: _factor(Operation.INPUT),
    Operation.INPUT_NORM: _norm(Operation.INPUT, Operation.INPUT_FACTOR, "input_layernorm.weight"),
    Operation.QUERY: _product(Operation.INPUT_NORM, "self_attn.q_proj", lambda shape: shape.biased),
    Operation.KEY: _product(Operation.INPUT_NORM, "self_attn.k_proj", lambda shape: shape.biased),
    Operation.VALUE: _product(Operation.INPUT_NORM, "self_attn.v_proj", lambda shape: shape.biased),
    Operation.QUERY_FACTORS: _head_factor(Operation.QUERY),
    Operation.QUERY_NORM: _head_norm(Operation.QUERY, Operation.QUERY_FACTORS, "self_attn.q_norm.weight"),
    Operation.KEY_FACTORS: _head_factor(Operation.KEY),
    Operation.KEY_NORM: _head_norm(Operation.KEY, Operation.KEY_FACTORS, "self_attn.k_norm.weight"),
    Operation.COSINES: _frequency(StepKind.COSINE),
    Operation.SINES: _frequency(StepKind.SINE),
    Operation.ROTATED_QUERY: _rotation(Operation.QUERY, Operation.QUERY_NORM),
    Operation.ROTATED_KEY: _rotation(Operation.KEY, Operation.KEY_NORM),
    Operation.SCORES: _score,
    Operation.CAPPED_SCORES: _cap,
    Operation.MAXIMA: _maximum,
    Operation.EXPONENTIALS: _exponential,
    Operation.SUMS: _sum,
    Operation.PROBABILITIES: _probability,
    Operation.ATTENDED: _attended,
    Operation.ATTENTION_OUTPUT: _product(Operation.ATTENDED, "self_attn.o_proj", lambda shape: shape.output_biased),
    Operation.ATTENTION_FACTOR: _factor(Operation.ATTENTION_OUTPUT),
    Operation.ATTENTION_NORM: _norm(
        Operation.ATTENTION_OUTPUT, Operation.ATTENTION_FACTOR, "post_attention_layernorm.weight"
    ),
    Operation.MIDDLE: _residual(Operation.INPUT, Operation.ATTENTION_OUTPUT, Operation.ATTENTION_NORM),
    Operation.FEED_FACTOR: _factor(Operation.MIDDLE),
    Operation.FEED_NORM: _feed_norm,
    Operation.GATE: _product(Operation.FEED_NORM, "mlp.gate_proj"),
    Operation.UP: _product(Operation.FEED_NORM, "mlp.up_proj"),
    Operation.GATED: _gating,
    Operation.DOWN: _product(Operation.GATED, "mlp.down_proj"),
    Operation.DOWN_FACTOR: _factor(Operation.DOWN),
    Operation.DOWN_NORM: _norm(Operation.DOWN, Operation.DOWN_FACTOR, "post_feedforward_layernorm.weight"),
    Operation.OUTPUT: _residual(Operation.MIDDLE, Operation.DOWN, Operation.DOWN_NORM),
}
