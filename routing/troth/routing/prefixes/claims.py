"""What one member is believed to hold: what it said, and what it was just sent. Both bounded, the least used go first.

Bounds are per member, so that one that claims without end pushes out only its own claims.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

MOST_CLAIMS = 65_536
"""Chunks that a member said it holds."""
MOST_EXPECTED = 8_192
"""Chunks that it was sent and has not confirmed."""


def edge_of(parent: int, name: int) -> int:
    """The tree's key of a chunk below its parent: 64 bits."""
    return parent << 32 | name


class PrefixClaims:
    """One member's chunks. Methods that change what is held return the edges that were gained or lost.

    Args:
        most: claims kept.
        most_expected: expectations kept.
    """

    def __init__(self, most: int = MOST_CLAIMS, most_expected: int = MOST_EXPECTED) -> None:
        self._most, self._most_expected = most, most_expected
        self._said: OrderedDict[int, int] = OrderedDict()  # name: edge, least used first
        self._expected: OrderedDict[int, float] = OrderedDict()  # edge: until when, oldest first

    def __len__(self) -> int:
        return len(self._said) + len(self._expected)

    def store(self, parent: int, name: int) -> Iterator[tuple[int, bool]]:
        """The member says it holds a chunk: (edge, whether gained) for each edge that changes."""
        edge = edge_of(parent, name)
        before = self._said.pop(name, None)
        self._said[name] = edge
        if self._expected.pop(edge, None) is None and before != edge:
            yield edge, True
        if before is not None and before != edge and before not in self._expected:
            yield before, False
        if len(self._said) > self._most:
            _, oldest = self._said.popitem(last=False)
            if oldest not in self._expected:
                yield oldest, False

    def remove(self, name: int) -> Iterator[int]:
        """The member holds a chunk no more, whatever was expected: the edge lost."""
        edge = self._said.pop(name, None)
        if edge is not None:
            self._expected.pop(edge, None)
            yield edge

    def expect(self, edges: Iterable[int], until: float) -> Iterator[tuple[int, bool]]:
        """The member was sent a prompt: it will hold these, and must say so before `until`."""
        said = self._said
        for edge in edges:
            if said.get(edge & 0xFFFF_FFFF) == edge:
                continue
            if self._expected.pop(edge, None) is None:
                yield edge, True
            self._expected[edge] = until
            if len(self._expected) > self._most_expected:
                yield self._expected.popitem(last=False)[0], False

    def expire(self, now: float) -> Iterator[int]:
        """Edges that were expected until before `now`, and that the member has not confirmed."""
        while self._expected:
            edge, until = next(iter(self._expected.items()))
            if until >= now:
                return
            del self._expected[edge]
            yield edge

    def use(self, names: Iterable[int]) -> None:
        """These were just matched: they are evicted last. Call it with the deepest first, so that leaves go first."""
        for name in names:
            if name in self._said:
                self._said.move_to_end(name)

    def replace(self, chunks: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
        """A snapshot: (edges gained, edges lost). Expectations stay, for it may be older than they are."""
        before = set(self._said.values()) | self._expected.keys()
        kept = {name: edge_of(parent, name) for parent, name in chunks}
        for name in [name for name, edge in self._said.items() if kept.get(name) != edge]:
            del self._said[name]
        for name, edge in kept.items():
            if name not in self._said:
                self._said[name] = edge
            self._expected.pop(edge, None)
        while len(self._said) > self._most:
            self._said.popitem(last=False)
        after = set(self._said.values()) | self._expected.keys()
        return list(after - before), list(before - after)

    def edges(self) -> set[int]:
        """All edges held or expected."""
        return set(self._said.values()) | self._expected.keys()
