"""How the trace of a segment is laid out, and how a model's shape is encoded: the rules of the contract ``Steps``.

The trace has for each layer the tensors of its operations, in their order, and behind the model's last layer three
more: its state again, the factor of the last norm, and the norm. A row of a tensor is that of a position; the values
alone stand with a row for each number and a column for each position, since they are read so. Where a nudge is named,
the nudged trace's tensors stand behind those of the plain one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from troth.protocol.architecture import text_part
from troth.protocol.arithmetic.operations import (
    Activation,
    LayerShape,
    Operation,
    RowSlice,
    has_operation,
    width,
)
from troth.protocol.arithmetic.shapes import float_bits, layer_shape
from troth.protocol.disputes.game import Matter
from troth.protocol.disputes.tree import depth_over
from troth.protocol.errors import InvalidStep
from troth.protocol.exact_numbers import NumberFormat
from troth.protocol.hashing import keccak256
from troth.protocol.market.messages import abi_encode
from troth.protocol.market.types import Bytes
from troth.protocol.types import Hash32, Uint8, Uint32

OPERATIONS = len(Operation)
LAST = 3
"""Tensors behind the model's last layer: its state, the factor and the norm."""
WORD_NUMBERS = 8
MOST_TERMS = 8_192
"""The longest sum, and the most positions, that one transaction takes."""
MOST_WIDTH = 1 << 16
ONE = 0x3F800000
TOLERANCE = 0x38D1B717
"""10**-4: by so much of a row's root mean square each of its numbers may differ from the trace's."""
ROOM = 0x40800000
"""4: by so many times what a nudge moves it a row may differ."""
NUDGES = 8
"""Nudges of which the accused may choose one, from 1 on."""
GEMMA = frozenset({"gemma", "gemma2", "gemma3_text"})
OTHER = "Leave the row to the court."


@dataclass(frozen=True, slots=True)
class EncodedLayer:
    """A LayerShape as the contract takes it: ``frequencies`` are uint32 big-endian, one after the other."""

    hidden: Uint32
    heads: Uint32
    key_heads: Uint32
    head_width: Uint32
    intermediate: Uint32
    window: Uint32
    epsilon: Uint32
    scale: Uint32
    cap: Uint32
    frequencies: Bytes
    activation: Uint8
    biased: bool
    output_biased: bool
    head_norms: bool
    shifted: bool
    framed: bool


@dataclass(frozen=True, slots=True)
class DisputedShape:
    """How a model computes, beside its weights: the kinds of its layers, and by ``pattern`` the kind of each."""

    kinds: tuple[EncodedLayer, ...]
    pattern: Bytes
    layers: str
    embedding: str
    embedding_scale: Uint32
    norm: str

    @property
    def encoded(self) -> bytes:
        """As classes name it by its hash and disputes show it."""
        return abi_encode(self)

    @property
    def hash(self) -> Hash32:
        """What a class names."""
        return Hash32(keccak256(self.encoded))

    def layer(self, number: int) -> LayerShape:
        """One layer's shape; of the number behind the last one, the shape that its norm has."""
        kind = self.kinds[self.pattern[min(number, len(self.pattern) - 1)]]
        words = kind.frequencies
        frequencies = tuple(int.from_bytes(words[at : at + 4]) for at in range(0, len(words), 4))
        plain = {name: getattr(kind, name) for name in kind.__slots__}
        plain |= {"frequencies": frequencies, "activation": Activation(kind.activation)}
        return LayerShape(prefix=f"{self.layers}{number}.", format=NumberFormat.FLOAT32, **plain)


def model_shape(config: Mapping[str, Any]) -> DisputedShape:
    """The shape of the model with this config.json. Raises InvalidStep for a model that no transaction checks."""
    text = text_part(config)
    kinds: list[EncodedLayer] = []
    pattern = bytearray()
    for number in range(int(text["num_hidden_layers"])):
        kind = _encoded(layer_shape(config, number, NumberFormat.FLOAT32))
        if kind not in kinds:
            kinds.append(kind)
        pattern.append(kinds.index(kind))
    family, hidden = text.get("model_type"), int(text["hidden_size"])
    scale = float_bits(hidden**0.5) if family in GEMMA else ONE
    return DisputedShape(
        tuple(kinds), bytes(pattern), "model.layers.", "model.embed_tokens.weight", scale, "model.norm.weight"
    )


class NumberPlace(NamedTuple):
    """Where a number is: layer, operation, position, place in its row, and whether in the nudged trace."""

    layer: int
    operation: Operation
    position: int
    element: int
    nudged: bool = False

    @property
    def alone(self) -> RowSlice:
        """As a slice of its row."""
        return RowSlice(self.operation, self.position, self.position + 1, self.element, self.element + 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """The tensors of the segment with layers ``first`` to ``end`` (without) at positions 0 to ``position``.

    ``doubled``: once more for the nudged trace.
    """

    model: DisputedShape
    first: int
    end: int
    position: int
    doubled: bool = False

    @classmethod
    def of(cls, matter: Matter, model: DisputedShape, nudge: int = 0) -> Layout:
        """Of what a dispute is about; raises InvalidStep for another model's shape, or a row that is not checked."""
        if model.hash != matter.shape:
            raise InvalidStep("The class names another shape", model.hash, "Take the model of the class.")
        made = cls(model, matter.first, matter.end, matter.position, nudge != 0)
        made.require()
        return made

    @property
    def is_last(self) -> bool:
        """Whether the model ends with this segment."""
        return self.end == len(self.model.pattern)

    @property
    def single(self) -> int:
        """How many tensors one trace has."""
        return OPERATIONS * (self.end - self.first) + (LAST if self.is_last else 0)

    @property
    def count(self) -> int:
        """How many tensors there are."""
        return 2 * self.single if self.doubled else self.single

    @property
    def depth(self) -> int:
        """Levels of the tree over all of them."""
        return depth_over(self.count)

    def require(self) -> None:
        """Raise InvalidStep for sums, rows or positions beyond what one transaction takes."""
        for kind in self.model.kinds:
            sums = (kind.hidden, kind.intermediate, kind.heads * kind.head_width, self.position + 1)
            if max(sums) > MOST_TERMS or kind.heads * (self.position + 1) > MOST_WIDTH:
                raise InvalidStep("The layer or the text is too large to be checked", sums, OTHER)

    def where(self, tensor: int) -> tuple[int, Operation]:
        """Layer and operation of a tensor; raises InvalidStep where there is none."""
        if not 0 <= tensor < self.count:
            raise InvalidStep(f"The trace has {self.count} tensors", tensor, "Stay inside of it.")
        alone = tensor % self.single
        return self.first + alone // OPERATIONS, Operation(alone % OPERATIONS)

    def tensor(self, layer: int, operation: Operation, *, nudged: bool = False) -> int:
        """The number of a tensor."""
        return OPERATIONS * (layer - self.first) + operation + (self.single if nudged else 0)

    def exists(self, tensor: int) -> bool:
        """Whether the layer has these rows."""
        layer, operation = self.where(tensor)
        return (
            operation < LAST if layer == len(self.model.pattern) else has_operation(self.model.layer(layer), operation)
        )

    def table(self, tensor: int) -> tuple[int, int]:
        """Rows and columns of a tensor; (1, 1) where the layer has no such rows."""
        layer, operation = self.where(tensor)
        shape, positions = self.model.layer(layer), self.position + 1
        if not has_operation(shape, operation):
            return (1 if operation is Operation.VALUE else positions), 1
        columns = width(shape, operation, self.position)
        return (columns, positions) if operation is Operation.VALUE else (positions, columns)

    def levels(self, tensor: int) -> tuple[int, int]:
        """Levels of a tensor's tree over its rows, and over the words of one."""
        rows, columns = self.table(tensor)
        return depth_over(rows), depth_over(-(-columns // WORD_NUMBERS))

    def place(self, tensor: int, word: int, number: int) -> NumberPlace | None:
        """Which number stands there; None for what pads."""
        layer, operation = self.where(tensor)
        across = self.levels(tensor)[1]
        row, column = word >> across, (word & (1 << across) - 1) * WORD_NUMBERS + number
        position, element = (column, row) if operation is Operation.VALUE else (row, column)
        if position > self.position or not self.exists(tensor):
            return None
        shape = self.model.layer(layer)
        if element >= width(shape, operation, position):
            return None
        return NumberPlace(layer, operation, position, element, tensor >= self.single)

    def reads(self, place: NumberPlace) -> bool:
        """Whether the segment read this number, and did not compute it."""
        return place.operation is Operation.INPUT and place.layer == self.first and not place.nudged

    def before(self, place: NumberPlace) -> NumberPlace | None:
        """The number that a layer's input is made of; None for what the segment read."""
        if place.layer > self.first:
            return place._replace(layer=place.layer - 1, operation=Operation.OUTPUT)
        return place._replace(nudged=False) if place.nudged else None

    def words(self, layer: int, slice_: RowSlice, *, nudged: bool = False) -> tuple[int, int, int]:
        """The tensor of a slice, the first of its words and their number."""
        tensor = self.tensor(layer, slice_.operation, nudged=nudged)
        row, start, stop = slice_.first, slice_.start, slice_.stop
        if slice_.operation is Operation.VALUE:
            row, start, stop = slice_.start, slice_.first, slice_.last
        first = start // WORD_NUMBERS
        return tensor, (row << self.levels(tensor)[1]) + first, -(-stop // WORD_NUMBERS) - first


def _encoded(shape: LayerShape) -> EncodedLayer:
    plain = {name: getattr(shape, name) for name in EncodedLayer.__slots__ if name != "frequencies"}
    words = b"".join(bits.to_bytes(4, "big") for bits in shape.frequencies)
    return EncodedLayer(**plain | {"activation": int(shape.activation)}, frequencies=words)
