"""The Fisher–Yates shuffle that turns a VRF output into an order of a group's slots.

Step i swaps item i with item i + keccak256(abi.encode(beta, i)) mod (size - i). The contract's library
``Permutation`` takes the same steps, only as many as it needs.
"""

from __future__ import annotations

from collections.abc import Iterator

from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256

SLOT_LIMIT = 2**32 - 1
"""The contract keeps slots in 32 bits; a larger group would stop being assignable there."""


def walk(beta: bytes, size: int) -> Iterator[int]:
    """The slots 0..size-1 in shuffled order, one hash per slot drawn; only moved items take memory.

    ``beta`` is 32 bytes. Raises InvalidField if it is not or if ``size`` does not fit.
    """
    if len(beta) != 32:
        raise InvalidField("The seed of a permutation is not 32 bytes long", beta, "Pass the VRF output.")
    if not 0 <= size < SLOT_LIMIT:
        raise InvalidField("A permutation of so many slots is not possible", size, f"Stay below {SLOT_LIMIT}.")
    return _steps(beta, size)


def _steps(beta: bytes, size: int) -> Iterator[int]:
    displaced: dict[int, int] = {}
    for step in range(size):
        drawn = int.from_bytes(keccak256(beta + step.to_bytes(32, "big")), "big")
        other = step + drawn % (size - step)
        slot = displaced.pop(other, other)
        if other != step:
            displaced[other] = displaced.pop(step, step)
        yield slot


def permutation(beta: bytes, size: int) -> tuple[int, ...]:
    """The whole shuffled order; see ``walk``."""
    return tuple(walk(beta, size))
