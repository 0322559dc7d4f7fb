"""What convicts at the end of a dispute, as the contract ``Steps`` takes it: one number with all that it follows from,
or a signed row beside the trace's last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from troth.protocol.arithmetic.operations import Operation, RowSlice, WeightSlice, step
from troth.protocol.disputes.game import SeenTrace
from troth.protocol.disputes.layout import Layout, NumberPlace
from troth.protocol.disputes.tree import Range
from troth.protocol.market.messages import abi_encode
from troth.protocol.market.token_proofs import ShownRow
from troth.protocol.market.types import Bytes
from troth.protocol.types import Hash32, Uint8, Uint32


@dataclass(frozen=True, slots=True)
class WordsOpening:
    """Words of a tensor side by side, up to the trace's root."""

    words: Bytes
    siblings: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True)
class WeightOpening:
    """A leaf of a tensor of the weights, up to the weights root; ``rows`` 0: a vector."""

    dtype: str
    rows: Uint32
    columns: Uint32
    leaves: Uint32
    quantisation: Hash32
    tensors: Uint32
    place: Uint32
    siblings: tuple[Hash32, ...]
    leaf: Bytes
    leaf_siblings: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True)
class StepProof:
    """``element`` of the word, and all that it follows from; ``entered`` for the segment's own input alone."""

    element: Uint8
    rows: tuple[WordsOpening, ...]
    weights: tuple[WeightOpening, ...]
    entered: tuple[ShownRow, ...]


@dataclass(frozen=True, slots=True)
class RowProof:
    """A signed row beside the trace's last; ``element`` is where they differ by too much."""

    element: Uint32
    last: WordsOpening
    signed: ShownRow


OpenWeights = Callable[[WeightSlice], WeightOpening]
"""The leaf of the model's weights that holds a slice."""
OpenRow = Callable[[int], ShownRow]
"""What the node signed for a position: of the first segment the row that it gave, else the row that it read."""


def step_proof(  # noqa: PLR0917
    layout: Layout, seen: SeenTrace, place: NumberPlace | None, number: int, weights: OpenWeights, entered: OpenRow
) -> bytes:
    """One number with all that it follows from; ``number``: which of its word; ``place`` None: it pads, and is zero."""
    if place is None:
        return abi_encode(StepProof(number, (), (), ()))
    if place.operation is Operation.INPUT:
        return abi_encode(_entered(layout, seen, place, number, weights, entered))
    shape = layout.model.layer(place.layer)
    made = step(shape, place.operation, place.position, place.element)
    rows = tuple(_opened(layout, seen, place.layer, one) for one in made.slices if isinstance(one, RowSlice))
    leaves = tuple(weights(_named(layout, place, one)) for one in made.slices if isinstance(one, WeightSlice))
    return abi_encode(StepProof(number, rows, leaves, ()))


def row_proof(layout: Layout, seen: SeenTrace, element: int, signed: ShownRow) -> bytes:
    """A signed row with the trace's."""
    layer, operation = layout.where(layout.count - 1)
    whole = RowSlice(operation, layout.position, layout.position + 1, 0, layout.model.layer(layer).hidden)
    return abi_encode(RowProof(element, _opened(layout, seen, layer, whole), signed))


def _entered(  # noqa: PLR0917
    layout: Layout, seen: SeenTrace, place: NumberPlace, number: int, weights: OpenWeights, entered: OpenRow
) -> StepProof:
    if place.layer > layout.first:
        slice_ = RowSlice(Operation.OUTPUT, place.position, place.position + 1, place.element, place.element + 1)
        return StepProof(number, (_opened(layout, seen, place.layer - 1, slice_),), (), ())
    shown = entered(place.position)
    if layout.first:
        return StepProof(number, (), (), (shown,))
    embedding = WeightSlice(layout.model.embedding, shown.read, place.element, place.element + 1)
    return StepProof(number, (), (weights(embedding),), (shown,))


def _named(layout: Layout, place: NumberPlace, slice_: WeightSlice) -> WeightSlice:
    """The last norm is named by itself."""
    if place.layer < len(layout.model.pattern):
        return slice_
    return WeightSlice(layout.model.norm, slice_.row, slice_.start, slice_.stop)


def _opened(layout: Layout, seen: SeenTrace, layer: int, slice_: RowSlice) -> WordsOpening:
    found: Range = seen.open(*layout.words(layer, slice_))
    return WordsOpening(found.words, found.siblings)
