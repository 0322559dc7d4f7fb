"""What convicts at the end of a dispute, as the contract ``Steps`` takes it: one number with all that it follows from,
or a signed row beside the trace's last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from troth.protocol.arithmetic.operations import Operation, RowSlice, Slice, WeightSlice, step
from troth.protocol.disputes.game import SeenTrace
from troth.protocol.disputes.layout import Layout, NumberPlace
from troth.protocol.disputes.sums import part_of
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
    """A signed row beside the trace's last; ``element`` is where they differ by too much.

    ``nudged``: the word of the nudged trace's last row that says how far the nudge moves it; empty without one.
    """

    element: Uint32
    last: WordsOpening
    signed: ShownRow
    nudged: WordsOpening


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
    return abi_encode(_read(layout, seen, place, number, made.slices, weights))


def _read(  # noqa: PLR0917
    layout: Layout, seen: SeenTrace, place: NumberPlace, number: int, slices: Sequence[Slice], weights: OpenWeights
) -> StepProof:
    read = (one for one in slices if isinstance(one, RowSlice))
    rows = tuple(_opened(layout, seen, place.layer, one, nudged=place.nudged) for one in read)
    leaves = tuple(weights(_named(layout, place, one)) for one in slices if isinstance(one, WeightSlice))
    return StepProof(number, rows, leaves, ())


def part_proof(  # noqa: PLR0917
    layout: Layout, seen: SeenTrace, place: NumberPlace, number: int, index: int, weights: OpenWeights
) -> bytes:
    """One part of a long sum with its terms; ``number``: which of its word."""
    made = step(layout.model.layer(place.layer), place.operation, place.position, place.element)
    _, slices = part_of(made, index)
    return abi_encode(_read(layout, seen, place, number, slices, weights))


def row_proof(layout: Layout, seen: SeenTrace, element: int, signed: ShownRow, moved: int = 0) -> bytes:
    """A signed row with the trace's; ``moved`` is the element that the accused named with its nudge."""
    layer, operation = layout.where(layout.count - 1)
    hidden = layout.model.layer(layer).hidden
    whole = RowSlice(operation, layout.position, layout.position + 1, 0, hidden)
    nudged = WordsOpening(b"", ())
    if layout.doubled and moved < hidden:
        one = RowSlice(operation, layout.position, layout.position + 1, moved, moved + 1)
        nudged = _opened(layout, seen, layer, one, nudged=True)
    return abi_encode(RowProof(element, _opened(layout, seen, layer, whole), signed, nudged))


def _entered(  # noqa: PLR0917
    layout: Layout, seen: SeenTrace, place: NumberPlace, number: int, weights: OpenWeights, entered: OpenRow
) -> StepProof:
    before = layout.before(place)
    if before is not None:
        return StepProof(number, (_opened(layout, seen, before.layer, before.alone, nudged=before.nudged),), (), ())
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


def _opened(layout: Layout, seen: SeenTrace, layer: int, slice_: RowSlice, *, nudged: bool = False) -> WordsOpening:
    found: Range = seen.open(*layout.words(layer, slice_, nudged=nudged))
    return WordsOpening(found.words, found.siblings)
