"""The tree: for each chunk below its parent, which members hold it; and the search along a prompt's path.

A tree node is its 32-bit name, an edge (parent's name, name) is a 64-bit key of one table, its value a bit per member.
So a search is a lookup per chunk for all members at once, and an update a lookup per chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from troth.routing.prefixes.claims import PrefixClaims, edge_of
from troth.routing.prefixes.naming import ROOT
from troth.routing.prefixes.update import ChunkRun


@dataclass(frozen=True, slots=True)
class Matches:
    """Who holds how much of a prompt: (tokens, bits of the members that hold at least so many), longest first.

    `chunks` says how many chunks each entry stands for; `names` are those of the longest match, in order.
    """

    levels: tuple[tuple[int, int], ...] = ()
    chunks: tuple[int, ...] = ()
    names: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        """The longest match."""
        return self.levels[0][0] if self.levels else 0

    def held_by(self, slot: int) -> int:
        """Tokens of the prompt that this member holds."""
        return next((tokens for tokens, holders in self.levels if holders >> slot & 1), 0)


class HashRadixTree:
    """The aggregate of all members' claims. A member is a slot, a small number; its bit is 1 << slot."""

    def __init__(self) -> None:
        self._edges: dict[int, int] = {}
        self._claims: dict[int, PrefixClaims] = {}

    def __len__(self) -> int:
        """Edges: distinct chunks that anybody holds."""
        return len(self._edges)

    def add(self, slot: int, claims: PrefixClaims) -> None:
        """A member comes, with what it claims already."""
        self.drop(slot)
        self._claims[slot] = claims
        for edge in claims.edges():
            self._gain(edge, 1 << slot)

    def drop(self, slot: int) -> None:
        """A member is gone, and all it held."""
        claims = self._claims.pop(slot, None)
        if claims is not None:
            for edge in claims.edges():
                self._lose(edge, 1 << slot)

    def search(self, path: Iterable[tuple[int, int]], among: int) -> Matches:
        """Follow a path of (name, tokens up to its end) as long as one of the members `among` (bits) holds it."""
        holders_of, parent, holders, tokens = self._edges.get, ROOT, among, 0
        levels: list[tuple[int, int]] = []
        chunks: list[int] = []
        names: list[int] = []
        for name, end in path:
            holding = holders_of(parent << 32 | name, 0) & holders
            if holding != holders:
                if names:
                    levels.append((tokens, holders))
                    chunks.append(len(names))
                holders = holding
                if not holding:
                    break
            parent, tokens = name, end
            names.append(name)
        if holders and names:
            levels.append((tokens, holders))
            chunks.append(len(names))
        return Matches(tuple(levels[::-1]), tuple(chunks[::-1]), tuple(names))

    def store(self, slot: int, runs: Iterable[ChunkRun]) -> None:
        """A member says that it holds these."""
        claims, bit = self._claims[slot], 1 << slot
        for parent, name in leaves_first(runs):
            for edge, gained in claims.store(parent, name):
                (self._gain if gained else self._lose)(edge, bit)

    def remove(self, slot: int, names: Iterable[int]) -> None:
        """A member says that it holds these no more."""
        claims, bit = self._claims[slot], 1 << slot
        for name in names:
            for edge in claims.remove(name):
                self._lose(edge, bit)

    def replace(self, slot: int, runs: Iterable[ChunkRun]) -> None:
        """A member's snapshot."""
        gained, lost = self._claims[slot].replace(leaves_first(runs))
        for edge in gained:
            self._gain(edge, 1 << slot)
        for edge in lost:
            self._lose(edge, 1 << slot)

    def expect(self, slot: int, path: Iterable[tuple[int, int]], until: float) -> None:
        """A member was sent a prompt: believe that it holds it, until `until` without its own word."""
        parent, edges = ROOT, []
        for name, _ in path:
            edges.append(edge_of(parent, name))
            parent = name
        for edge, gained in self._claims[slot].expect(edges, until):
            (self._gain if gained else self._lose)(edge, 1 << slot)

    def expire(self, now: float) -> None:
        """End expectations that nobody confirmed."""
        for slot, claims in self._claims.items():
            for edge in claims.expire(now):
                self._lose(edge, 1 << slot)

    def use(self, slot: int, matches: Matches) -> None:
        """A member was chosen for a match: what it is evicted last of."""
        self._claims[slot].use(reversed(matches.names))

    def contents(self) -> dict[int, int]:
        """Edge to bits of its holders: a copy."""
        return dict(self._edges)

    def _gain(self, edge: int, bit: int) -> None:
        self._edges[edge] = self._edges.get(edge, 0) | bit

    def _lose(self, edge: int, bit: int) -> None:
        holders = self._edges.get(edge, 0) & ~bit
        if holders:
            self._edges[edge] = holders
        else:
            self._edges.pop(edge, None)


def leaves_first(runs: Iterable[ChunkRun]) -> Iterator[tuple[int, int]]:
    """(parent's name, name) of each chunk in these runs, from the last: what is stored last is evicted last."""
    for run in reversed(tuple(runs)):
        yield from reversed(tuple(zip((run.parent, *run.names), run.names, strict=False)))
