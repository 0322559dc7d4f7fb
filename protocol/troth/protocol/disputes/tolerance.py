"""How far a signed row may be from the canonical one, by the contract's steps (``Steps.isFar``).

A row is far where one of its numbers differs by more than the tolerance, a share of the row's root mean square. Where
the accused defends itself with a nudge, it must also differ by more than ``ROOM`` times what the nudge moves the row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from troth.protocol.arithmetic import steps
from troth.protocol.arithmetic.operations import StepKind
from troth.protocol.disputes.layout import ROOM, TOLERANCE
from troth.protocol.exact_numbers import NumberFormat

Numbers = NDArray[np.float32]
FLOAT32 = NumberFormat.FLOAT32


def furthest(signed: Numbers, canonical: Numbers, moved: int | None = None) -> int | None:
    """The element of a signed row that is too far from the canonical one; None: none is.

    ``moved``: how far a nudge moves the row (``movement``); None without one.
    """
    with np.errstate(all="ignore"):
        distances = np.abs(signed.astype(np.float64) - canonical)
    candidates = np.argsort(-np.where(np.isfinite(distances), distances, np.inf))[:2]
    return next((int(at) for at in candidates if is_far(signed, canonical, int(at), moved)), None)


def is_far(signed: Numbers, last: Numbers, element: int, moved: int | None = None) -> bool:
    """Whether one number of a signed row is too far, each step rounded to float32 as in the contract."""
    factor = steps.evaluate(StepKind.FACTOR, [_bits(last)], [0], FLOAT32)
    if not _is_finite(factor):
        return False
    off = distance(signed, last, element)
    if not steps.evaluate(StepKind.PRODUCT, [[off], [factor]], [], FLOAT32) & 0x7FFFFFFF > TOLERANCE:
        return False
    if moved is None:
        return True
    allowed = steps.evaluate(StepKind.PRODUCT, [[moved], [ROOM]], [], FLOAT32)
    return _is_finite(allowed) and off > allowed


def most_moved(nudged: Numbers, last: Numbers) -> int:
    """The element that a nudge moves the furthest: what the accused names with it."""
    with np.errstate(all="ignore"):
        distances = np.abs(nudged.astype(np.float64) - last)
    return int(np.argmax(np.where(np.isfinite(distances), distances, np.inf)))


def movement(nudged: Numbers, last: Numbers, element: int) -> int:
    """How far a nudge moves an element, float32 bits; nothing where the row has no such number."""
    return distance(nudged, last, element) if element < len(last) else 0


def distance(one: Numbers, other: Numbers, element: int) -> int:
    """|a - b| rounded to float32, as bits."""
    pair = [_bits(one[element : element + 1]), [_bits(other[element : element + 1])[0] ^ 1 << 31]]
    return steps.evaluate(StepKind.ADDITION, pair, [], FLOAT32) & 0x7FFFFFFF


def _is_finite(bits: int) -> bool:
    return bool(np.isfinite(np.uint32(bits).view(np.float32)))


def _bits(numbers: Numbers) -> list[int]:
    return [int(bits) for bits in np.ascontiguousarray(numbers, np.float32).view(np.uint32)]
