"""Sums that are too long for one transaction: cut into parts of 128 terms, between which stands the exact integer.

A part is 96 bytes, two's complement, big-endian, in units of 2**-298. A bias is a part of its own, behind the others.
The contract ``Steps`` has the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from troth.protocol.arithmetic import steps
from troth.protocol.arithmetic.operations import (
    NO_SUM,
    SUM_BYTES,
    Operation,
    RowSlice,
    Slice,
    Step,
    StepKind,
    WeightSlice,
)
from troth.protocol.errors import InvalidStep
from troth.protocol.exact_numbers import NumberFormat

AT_ONCE = 1_024
"""Terms of the longest sum that is computed at once."""
PART_TERMS = 128


def parts_of(step: Step) -> int:
    """Into how many parts a sum is cut; 0 where the number is no sum, or a short one."""
    if step.kind not in steps.SUMS or step.slices[0].count <= AT_ONCE:
        return 0
    return -(-step.slices[0].count // PART_TERMS) + int(_is_biased(step))


def part_of(step: Step, index: int) -> tuple[StepKind, tuple[Slice, ...]]:
    """What one part reads, and how; raises InvalidStep where there is no such part."""
    if not 0 <= index < parts_of(step):
        raise InvalidStep("The sum has no such part", (index, parts_of(step)), "Take one of them.")
    terms, first = step.slices[0].count, index * PART_TERMS
    if first >= terms:
        return StepKind.SUM, step.slices[-1:]
    plain = step.slices[:-1] if _is_biased(step) else step.slices
    return step.kind, tuple(_narrowed(one, first, min(first + PART_TERMS, terms)) for one in plain)


def conclude(step: Step, parts: Sequence[int]) -> int:
    """The number that parts make."""
    total = NO_SUM if NO_SUM in parts else sum(parts)
    last = step.constants[0] if step.constants else 0
    return steps.conclude(step.kind, total, step.slices[0].count, last, NumberFormat.FLOAT32)


def packed(parts: Sequence[int]) -> bytes:
    """Parts as they are given."""
    return b"".join(steps.sum_bytes(part) for part in parts)


def unpacked(data: bytes) -> tuple[int, ...]:
    """The same from bytes."""
    pieces = (data[at : at + SUM_BYTES] for at in range(0, len(data), SUM_BYTES))
    return tuple(int.from_bytes(piece, "big", signed=True) for piece in pieces)


def _is_biased(step: Step) -> bool:
    return step.kind is StepKind.PRODUCT and len(step.slices) > len("ab")


def _narrowed(slice_: Slice, first: int, end: int) -> Slice:
    if isinstance(slice_, RowSlice) and slice_.operation is Operation.VALUE:
        return replace(slice_, first=slice_.first + first, last=slice_.first + end)
    if isinstance(slice_, WeightSlice):
        return replace(slice_, start=slice_.start + first, stop=slice_.start + end)
    return replace(slice_, start=slice_.start + first, stop=slice_.start + end)
