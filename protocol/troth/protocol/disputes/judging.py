"""What the contract ``Steps`` says of a number or of a row, computed again from what a transaction showed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError
from numpy.typing import NDArray

from troth.protocol.arithmetic import steps
from troth.protocol.arithmetic.operations import (
    SUM_BYTES,
    Operation,
    RowSlice,
    Slice,
    Step,
    StepKind,
    WeightSlice,
    step,
)
from troth.protocol.bindings.structs import converter
from troth.protocol.disputes.game import Matter, TraceClaim
from troth.protocol.disputes.layout import WORD_NUMBERS, DisputedShape, Layout, NumberPlace
from troth.protocol.disputes.nudges import Nudge
from troth.protocol.disputes.proofs import RowProof, StepProof, WeightOpening, WordsOpening
from troth.protocol.disputes.sums import conclude, part_of, parts_of, unpacked
from troth.protocol.disputes.tolerance import is_far, movement
from troth.protocol.disputes.tree import Range, range_root
from troth.protocol.errors import InvalidOpening, InvalidStep
from troth.protocol.exact_numbers import NumberFormat
from troth.protocol.hashing import keccak256
from troth.protocol.market import checks
from troth.protocol.market.rows import RowHashes
from troth.protocol.market.token_proofs import ShownRow
from troth.protocol.types import Hash32
from troth.protocol.weight_rows import model_hash, root_of_path, row_leaf, tensor_hash

ONE = 0x3F800000
_ROW = "(bytes32,bytes32,uint32,bytes,bytes32[])"
_OPENING = "(bytes,bytes32[])"
_WEIGHT = "(string,uint32,uint32,uint32,bytes32,uint32,uint32,bytes32[],bytes,bytes32[])"
_LAYER = f"({','.join(['uint32'] * 9)},bytes,uint8,bool,bool,bool,bool,bool)"
_FORMS: dict[Any, str] = {
    StepProof: f"(uint8,{_OPENING}[],{_WEIGHT}[],{_ROW}[])",
    RowProof: f"(uint32,{_OPENING},{_ROW},{_OPENING})",
    DisputedShape: f"({_LAYER}[],bytes,string,string,uint32,string)",
}
Form = TypeVar("Form")


def read(kind: type[Form], data: bytes) -> Form:
    """A StepProof, RowProof or DisputedShape as a transaction shows it; raises InvalidStep for other bytes."""
    try:
        (found,) = decode([_FORMS[kind]], data)
        hint: Any = kind
        made: Form = converter(hint)(found)
    except (DecodingError, ValueError, OverflowError) as error:
        raise InvalidStep(f"This is no {kind.__name__}", len(data), "Read the transaction's input.") from error
    return made


class DisputeJudge:
    """The arithmetic of one dispute, whose trace has this root; raises InvalidStep, InvalidOpening as the contract
    reverts."""

    def __init__(self, matter: Matter, shape: bytes, claim: TraceClaim) -> None:
        self._matter, self._claim = matter, claim
        self._layout = Layout.of(matter, read(DisputedShape, shape), claim.nudge)

    def is_wrong(self, tensor: int, word: int, value: bytes, proof: StepProof) -> bool:
        """Whether a number of a word is another one than what the numbers before it give."""
        if proof.element >= WORD_NUMBERS:
            raise InvalidStep("A word has eight numbers", proof.element, "Name one of them.")
        claimed = int.from_bytes(value[4 * proof.element : 4 * proof.element + 4], "little")
        place = self._layout.place(tensor, word, proof.element)
        if place is None:
            return claimed != 0
        if place.operation is Operation.INPUT:
            return claimed != self._entered(place, proof)
        return claimed != self._computed(place, proof)

    def concludes(self, tensor: int, word: int, value: bytes, number: int, parts: bytes) -> bool:
        """Whether parts make a number of a word; what is computed at once has none."""
        place = self._layout.place(tensor, word, number)
        if place is None or place.operation is Operation.INPUT:
            return not parts
        made = self._step(place)
        if len(parts) != SUM_BYTES * parts_of(made):
            return False
        claimed = int.from_bytes(value[4 * number : 4 * number + 4], "little")
        return not parts or conclude(made, unpacked(parts)) == claimed

    def is_wrong_part(self, tensor: int, word: int, number: int, index: int, part: int, proof: StepProof) -> bool:  # noqa: PLR0917
        """Whether a part is another one than its terms make."""
        place = self._layout.place(tensor, word, number)
        if place is None or place.operation is Operation.INPUT:
            raise InvalidStep("The number is no sum", (tensor, word, number), "Compute it at once.")
        kind, slices = part_of(self._step(place), index)
        return part != steps.add(kind, 0, self._operands(place, slices, proof))

    def _step(self, place: NumberPlace) -> Step:
        return step(self._layout.model.layer(place.layer), place.operation, place.position, place.element)

    def is_far(self, proof: RowProof) -> bool:
        """Whether the signed row is further from the trace's last row than honest machines are."""
        matter, layout = self._matter, self._layout
        self.require_signed(matter.position, proof.signed)
        layer, operation = layout.where(layout.count - 1)
        whole = RowSlice(operation, matter.position, matter.position + 1, 0, matter.hidden)
        last = _floats(self._opened(layer, whole, proof.last))
        signed, moved = np.frombuffer(proof.signed.row, "<f4"), self._claim.moved
        far = is_far(signed, last, proof.element)
        if not far or not self._claim.nudge or moved >= matter.hidden:
            return far
        one = RowSlice(operation, matter.position, matter.position + 1, moved, moved + 1)
        nudged = _floats(self._opened(layer, one, proof.nudged, nudged=True))
        return is_far(signed, last, proof.element, movement(nudged, last[moved : moved + 1], 0))

    def require_signed(self, position: int, row: ShownRow) -> None:
        """Raise unless this is the row of a position under the output head."""
        self._require_row(self._matter.segment, position, row, self._matter.output_head)

    # ------------------------------------------------------------------------------------------------------ one number

    def _computed(self, place: NumberPlace, proof: StepProof) -> int:
        made = self._step(place)
        if parts_of(made):
            raise InvalidStep("A sum of so many terms is computed in parts", made.slices[0].count, "Ask for them.")
        operands = self._operands(place, made.slices, proof)
        return steps.evaluate(made.kind, operands, list(made.constants), NumberFormat.FLOAT32)

    def _operands(self, place: NumberPlace, slices: Sequence[Slice], proof: StepProof) -> list[list[int]]:
        model = self._layout.model
        rows = [one for one in slices if isinstance(one, RowSlice)]
        weights = [one for one in slices if isinstance(one, WeightSlice)]
        pairs = zip(rows, proof.rows, strict=True)
        operands = [self._opened(place.layer, *pair, nudged=place.nudged) for pair in pairs]
        for slice_, opening in zip(weights, proof.weights, strict=True):
            name = slice_.tensor if place.layer < len(model.pattern) else model.norm
            operands.append(self._weights(WeightSlice(name, slice_.row, slice_.start, slice_.stop), opening))
        return operands

    def _entered(self, place: NumberPlace, proof: StepProof) -> int:
        matter, layout = self._matter, self._layout
        factor, element = ONE, place.element
        before = layout.before(place)
        if before is not None:
            number = self._opened(before.layer, before.alone, proof.rows[0], nudged=before.nudged)
            if place.nudged:
                nudge = Nudge(self._claim.seed, self._claim.nudge)
                factor = nudge.factor(place.layer, place.position, element)
        elif matter.segment:
            shown = proof.entered[0]
            self._require_row(matter.segment - 1, place.position, shown, matter.input_head)
            number = [int.from_bytes(shown.row[4 * element : 4 * element + 4], "little")]
        else:
            shown = proof.entered[0]
            self.require_signed(place.position, shown)
            embedding = WeightSlice(layout.model.embedding, shown.read, element, element + 1)
            number, factor = self._weights(embedding, proof.weights[0]), layout.model.embedding_scale
        return steps.evaluate(StepKind.PRODUCT, [number, [factor]], [], NumberFormat.FLOAT32)

    # -------------------------------------------------------------------------------------------------------- openings

    def _opened(self, layer: int, slice_: RowSlice, opening: WordsOpening, *, nudged: bool = False) -> list[int]:
        layout = self._layout
        tensor, first, count = layout.words(layer, slice_, nudged=nudged)
        levels = sum(layout.levels(tensor))
        shown = Range(bytes(opening.words), tuple(opening.siblings))
        found = range_root(shown, (tensor << levels) + first, levels + layout.depth)
        if found != self._claim.root or len(opening.words) != 32 * count:
            raise InvalidOpening("The opening leads to another trace", found, "Open the accused's trace.")
        start, stop = slice_.start, slice_.stop
        if slice_.operation is Operation.VALUE:
            start, stop = slice_.first, slice_.last
        skipped = start % WORD_NUMBERS
        return _numbers(opening.words[4 * skipped : 4 * (skipped + stop - start)])

    def _weights(self, slice_: WeightSlice, opening: WeightOpening) -> list[int]:
        size = {"F32": 4, "BF16": 2}.get(opening.dtype)
        rows = opening.rows or 1
        if size is None or slice_.row >= rows or slice_.stop > opening.columns:
            raise InvalidOpening("The tensor has no such weights", slice_.tensor, "Open the model's own.")
        length = rows * opening.columns * size // opening.leaves
        start = (slice_.row * opening.columns + slice_.start) * size
        leaf, count = start // length, (slice_.stop - slice_.start) * size
        if len(opening.leaf) != length or start % length + count > length:
            raise InvalidOpening("The leaf does not hold these weights", slice_.tensor, "Open the leaf that does.")
        tree = root_of_path(row_leaf(slice_.tensor, leaf, opening.leaf), leaf, opening.leaves, opening.leaf_siblings)
        shape = (opening.rows, opening.columns) if opening.rows else (opening.columns,)
        tensor = tensor_hash(slice_.tensor, opening.dtype, shape, opening.leaves, tree)
        whole = root_of_path(tensor, opening.place, opening.tensors, opening.siblings)
        if model_hash(opening.quantisation, opening.tensors, whole) != self._matter.weights_root:
            raise InvalidOpening("These are not the model's weights", slice_.tensor, "Open the model's own.")
        data = opening.leaf[start - leaf * length :][:count]
        return _numbers(data) if size == 4 else [bits << 16 for bits in np.frombuffer(data, "<u2").tolist()]

    def _require_row(self, segment: int, position: int, shown: ShownRow, head: Hash32) -> None:
        matter = self._matter
        if len(shown.later) != matter.rows - 1 - position or len(shown.row) != 4 * matter.hidden:
            raise InvalidOpening("The row is of another place", position, "Show the one that was signed.")
        bound = shown.read.to_bytes(4, "big") if segment == 0 else b""
        chain = RowHashes(matter.order, segment, position, Hash32(shown.previous))
        chain, _ = chain.extend_hashed([keccak256(bound + shown.row), *shown.later])
        if checks.head(matter.order, shown.head_salt, chain.link) != head:
            raise InvalidOpening("The row is not under the signed head", position, "Show the one that was signed.")


def _floats(bits: list[int]) -> NDArray[np.float32]:
    return np.array(bits, np.uint32).view(np.float32)


def _numbers(data: bytes | Sequence[int]) -> list[int]:
    found: list[int] = np.frombuffer(bytes(data), "<u4").tolist()
    return found
