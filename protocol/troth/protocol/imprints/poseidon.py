"""The hash Poseidon over the scalars of alt_bn128, with the parameters of circomlib.

Grassi, Khovratovich, Rechberger, Roy and Schofnegger, "Poseidon" (2021), with x**5, eight full rounds, and constants
from the Grain generator of its appendix. A hash of n elements is the first word of a permutation of n + 1 words, the
first of which is zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import add, mul
from typing import NamedTuple

FIELD = 0x30644E72E131A029B85045B68181585D2833E84879B9709143E1F593F0000001
"""Order of the curve's group."""
FULL_ROUNDS = 8
PARTIAL_ROUNDS = {3: 57, 6: 60}
"""By the words of a permutation, as circomlib has them: 128 bits of security with a margin."""
_BITS = 254


class PoseidonParameters(NamedTuple):
    """Constants of each round, and the matrix."""

    rounds: tuple[tuple[int, ...], ...]
    matrix: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=len(PARTIAL_ROUNDS))
def parameters(words: int) -> PoseidonParameters:
    """Of permutations of 3 or 6 words."""
    partial = PARTIAL_ROUNDS[words]
    bits = _grain(words, partial)
    rounds = FULL_ROUNDS + partial
    constants = [_element(bits) for _ in range(rounds * words)]
    while True:
        # The matrix of Cauchy is taken below the order by a remainder, and not by another draw.
        points = [_number(bits) % FIELD for _ in range(2 * words)]
        sums = [[(x + y) % FIELD for y in points[words:]] for x in points[:words]]
        if len(set(points)) == len(points) and all(all(row) for row in sums):
            break
    matrix = tuple(tuple(pow(one, -1, FIELD) for one in row) for row in sums)
    return PoseidonParameters(
        tuple(tuple(constants[first : first + words]) for first in range(0, rounds * words, words)), matrix
    )


def poseidon(inputs: Sequence[int]) -> int:
    """The hash of 2 or 5 elements of the field."""
    state = [0, *inputs]
    rounds, matrix = parameters(len(state))
    half, last = FULL_ROUNDS // 2, len(rounds) - FULL_ROUNDS // 2
    for number, constants in enumerate(rounds):
        state = list(map(add, state, constants))
        if half <= number < last:
            state[0] = _fifth(state[0])
        else:
            state = list(map(_fifth, state))
        state = [sum(map(mul, row, state)) % FIELD for row in matrix]
    return state[0]


def _fifth(value: int) -> int:
    square = value * value % FIELD
    return square * square * value % FIELD


def _grain(words: int, partial: int) -> Iterator[bool]:
    """Bits of the generator: an odd one of each pair, where the even one is set."""
    seed = (
        (1, 2), (0, 4), (_BITS, 12), (words, 12), (FULL_ROUNDS, 10), (partial, 10), ((1 << 30) - 1, 30),
    )  # fmt: skip
    text = "".join(format(value, f"0{size}b") for value, size in seed)
    state = [digit == "1" for digit in text]

    def step() -> bool:
        bit = state[62] ^ state[51] ^ state[38] ^ state[23] ^ state[13] ^ state[0]
        state.append(bit)
        del state[0]
        return bit

    for _ in range(160):
        step()
    while True:
        chosen, bit = step(), step()
        if chosen:
            yield bit


def _number(bits: Iterator[bool]) -> int:
    value = 0
    for _ in range(_BITS):
        value = value << 1 | next(bits)
    return value


def _element(bits: Iterator[bool]) -> int:
    while (value := _number(bits)) >= FIELD:
        pass
    return value
