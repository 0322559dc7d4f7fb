"""Reads of contracts/disputes/Steps.sol: what it says of one number, or of one row, before anybody pays for it."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.bindings import STEPS
from troth.protocol.calls import View, calldata
from troth.protocol.disputes.game import Matter, TraceClaim
from troth.protocol.market.types import Bytes, Uint256
from troth.protocol.types import Hash32, Uint8, Uint32, Uint64


@dataclass(frozen=True, slots=True)
class TraceWord:
    """Eight numbers of one tensor."""

    tensor: Uint32
    place: Uint64
    value: Hash32


@dataclass(frozen=True, slots=True)
class SumPart:
    """One part of a long sum."""

    number: Uint8
    index: Uint256
    value: Bytes


def depth(matter: Matter, shape: bytes) -> View[int]:
    """Levels of the tree over all tensors."""
    return View("depth", calldata(STEPS, "depth", matter, shape), int, STEPS)


def depth_of(matter: Matter, shape: bytes, tensor: int, *, nudged: bool = False) -> View[int]:
    """Levels of one tensor's tree."""
    return View("depthOf", calldata(STEPS, "depthOf", matter, shape, nudged, tensor), int, STEPS)


def is_wrong(matter: Matter, shape: bytes, claim: TraceClaim, word: TraceWord, step: bytes) -> View[bool]:
    """Whether a number of the word does not follow from those before it."""
    return View("isWrong", calldata(STEPS, "isWrong", matter, shape, claim, word, step), bool, STEPS)


def concludes(
    matter: Matter, shape: bytes, claim: TraceClaim, word: TraceWord, number: int, parts: bytes
) -> View[bool]:
    """Whether parts make the number."""
    data = calldata(STEPS, "concludes", matter, shape, claim, word, number, parts)
    return View("concludes", data, bool, STEPS)


def is_wrong_part(
    matter: Matter, shape: bytes, claim: TraceClaim, word: TraceWord, part: SumPart, step: bytes
) -> View[bool]:
    """Whether a part is not what its terms make."""
    data = calldata(STEPS, "isWrongPart", matter, shape, claim, word, part, step)
    return View("isWrongPart", data, bool, STEPS)


def is_far(matter: Matter, shape: bytes, claim: TraceClaim, opening: bytes) -> View[bool]:
    """Whether the signed row is too far from the trace's."""
    return View("isFar", calldata(STEPS, "isFar", matter, shape, claim, opening), bool, STEPS)
