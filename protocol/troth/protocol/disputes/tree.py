"""Trees over a trace's words, and openings of neighbouring words: the rules of the contracts' library ``TraceTree``.

A word is 32 bytes, a node keccak256(0x01 ‖ left ‖ right). Whoever opens knows the depth, so that no node passes for a
word. What pads a tree is zero words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import sha3

from troth.protocol.errors import InvalidOpening
from troth.protocol.types import ZERO_HASH, Hash32

WORD_BYTES = 32
MOST_DEPTH = 127


@dataclass(frozen=True, slots=True)
class Range:
    """Words that stand side by side, and what stands beside them: from the bottom, the left one before the right."""

    words: bytes
    siblings: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True)
class WordTree:
    """A tree of ``depth`` levels above its words; words behind ``words`` are zero."""

    words: bytes
    depth: int
    _levels: list[bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.words) % WORD_BYTES or len(self.words) >> 5 > 1 << self.depth or self.depth > MOST_DEPTH:
            raise InvalidOpening(f"No tree of depth {self.depth}", len(self.words), "Pad the words, or deepen it.")
        levels = [self.words]
        for level in range(self.depth):
            levels.append(_above(levels[-1], _EMPTY[level]))
        object.__setattr__(self, "_levels", levels)

    @property
    def root(self) -> Hash32:
        """The top."""
        return self.node(self.depth, 0)

    def node(self, level: int, place: int) -> Hash32:
        """A node so many levels above the words."""
        if not 0 <= level <= self.depth or not 0 <= place < 1 << (self.depth - level):
            raise InvalidOpening("The tree has no such node", (level, place), "Stay inside of it.")
        start = place * WORD_BYTES
        kept = self._levels[level][start : start + WORD_BYTES]
        return Hash32(kept or _EMPTY[level])

    def nodes(self, level: int, first: int, count: int) -> tuple[Hash32, ...]:
        """Nodes side by side."""
        return tuple(self.node(level, first + at) for at in range(count))

    def path(self, level: int, place: int, height: int) -> tuple[Hash32, ...]:
        """Siblings of a node, up to so many levels above it."""
        return tuple(self.node(level + up, (place >> up) ^ 1) for up in range(height))

    def open(self, first: int, count: int) -> Range:
        """Words side by side with their way to the root; raises InvalidOpening for words beyond the tree."""
        if count < 1 or first < 0 or first + count > 1 << self.depth:
            raise InvalidOpening("The tree has no such words", (first, count), "Stay inside of it.")
        words = b"".join(self.nodes(0, first, count))
        siblings, end = [], first + count
        for level in range(self.depth):
            if first & 1:
                siblings.append(self.node(level, first - 1))
            if end & 1:
                siblings.append(self.node(level, end))
            first, end = first >> 1, end + 1 >> 1
        return Range(words, tuple(siblings))


def depth_over(count: int) -> int:
    """Levels above so many leaves, padded to a power of two."""
    return (count - 1).bit_length()


def root_over(nodes: Sequence[bytes]) -> Hash32:
    """The root over nodes that fill a tree; raises InvalidOpening for another number of them."""
    if len(nodes) != 1 << depth_over(max(len(nodes), 1)):
        raise InvalidOpening("These nodes fill no tree", len(nodes), "Show a power of two of them.")
    return WordTree(b"".join(nodes), depth_over(len(nodes))).root


def path_root(word: bytes, place: int, siblings: Sequence[bytes]) -> Hash32:
    """The root over one word; raises InvalidOpening for a place beyond the tree."""
    if len(siblings) > MOST_DEPTH or not 0 <= place < 1 << len(siblings):
        raise InvalidOpening("The tree has no such word", (place, len(siblings)), "Open it again.")
    for sibling in siblings:
        word = _node(word, sibling) if place & 1 == 0 else _node(sibling, word)
        place >>= 1
    return Hash32(word)


def range_root(shown: Range, first: int, depth: int) -> Hash32:
    """The root over words side by side; raises InvalidOpening where they, or their siblings, do not fit."""
    count, rest = divmod(len(shown.words), WORD_BYTES)
    if rest or count < 1 or not 0 <= depth <= MOST_DEPTH or not 0 <= first <= (1 << depth) - count:
        raise InvalidOpening("The tree has no such words", (first, len(shown.words), depth), "Open them again.")
    level = [shown.words[at : at + WORD_BYTES] for at in range(0, len(shown.words), WORD_BYTES)]
    siblings = list(reversed(shown.siblings))
    try:
        for _ in range(depth):
            if first & 1:
                level.insert(0, siblings.pop())
            if len(level) & 1:
                level.append(siblings.pop())
            level = [_node(*pair) for pair in zip(level[::2], level[1::2], strict=True)]
            first >>= 1
    except IndexError:
        siblings = [ZERO_HASH]
    if siblings:
        raise InvalidOpening("The opening has another number of siblings", len(shown.siblings), "Open it again.")
    return Hash32(level[0])


def _node(left: bytes, right: bytes) -> bytes:
    return sha3.keccak_256(b"\x01" + left + right).digest()


def _above(level: bytes, padding: bytes) -> bytes:
    if len(level) // WORD_BYTES & 1:
        level += padding
    keccak, step = sha3.keccak_256, 2 * WORD_BYTES
    return b"".join(keccak(b"\x01" + level[at : at + step]).digest() for at in range(0, len(level), step))


def _empty() -> list[bytes]:
    levels = [bytes(WORD_BYTES)]
    while len(levels) <= MOST_DEPTH:
        levels.append(_node(levels[-1], levels[-1]))
    return levels


_EMPTY = _empty()
"""The node over zero words, by its level."""
