"""Trees over a trace's words, and openings of neighbouring words: the rules of the contracts' library ``TraceTree``.

A word is 32 bytes, a node keccak256(0x01 ‖ left ‖ right). Whoever opens knows the depth, so that no node passes for a
word. What pads a tree is zero words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

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


class Tree(ABC):
    """``depth`` levels above words."""

    depth: int

    @abstractmethod
    def node(self, level: int, place: int) -> Hash32:
        """A node so many levels above the words; raises InvalidOpening where there is none."""

    @property
    def root(self) -> Hash32:
        """The top."""
        return self.node(self.depth, 0)

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

    def require(self, level: int, place: int) -> None:
        """Raise InvalidOpening where there is no such node."""
        if not 0 <= level <= self.depth or not 0 <= place < 1 << (self.depth - level):
            raise InvalidOpening("The tree has no such node", (level, place), "Stay inside of it.")


class WordTree(Tree):
    """The tree over these words; what stands behind them is zero."""

    def __init__(self, words: bytes, depth: int) -> None:
        if len(words) % WORD_BYTES or len(words) >> 5 > 1 << depth or not 0 <= depth <= MOST_DEPTH:
            raise InvalidOpening(f"No tree of depth {depth}", len(words), "Pad the words, or deepen it.")
        self.depth = depth
        self._levels = [words]
        for level in range(depth):
            self._levels.append(_above(self._levels[-1], _EMPTY[level]))

    def node(self, level: int, place: int) -> Hash32:
        """From what was hashed at first."""
        self.require(level, place)
        kept = self._levels[level][place * WORD_BYTES : (place + 1) * WORD_BYTES]
        return Hash32(kept or _EMPTY[level])


class SeenTree(Tree):
    """Somebody else's tree, as far as it was shown; where it was not, it is taken to be one's own."""

    def __init__(self, own: Tree) -> None:
        self.depth = own.depth
        self._own = own
        self._shown: dict[tuple[int, int], Hash32] = {}
        self._above: set[tuple[int, int]] = set()

    def note(self, level: int, first: int, nodes: Sequence[Hash32]) -> None:
        """Nodes side by side that were shown."""
        for place, node in enumerate(nodes, first):
            self._shown[level, place] = node
            self._above.update((level + up, place >> up) for up in range(1, self.depth - level + 1))

    def node(self, level: int, place: int) -> Hash32:
        """As shown, or made of what was shown below it, or one's own."""
        self.require(level, place)
        if (level, place) in self._shown:
            return self._shown[level, place]
        if (level, place) not in self._above:
            return self._own.node(level, place)
        return Hash32(_node(self.node(level - 1, 2 * place), self.node(level - 1, 2 * place + 1)))


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
    digest: bytes = sha3.keccak_256(b"\x01" + left + right).digest()
    return digest


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
