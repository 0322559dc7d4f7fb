"""Where a prompt is cut into chunks: the chunk-length array L (PlanetServe, appendix A3, equations 1 to 3).

The published array is s1, δ, s2 - s1 - δ, δ, …: one long chunk up to each common prompt's end, and a short one behind
it that tells apart what follows. We cut at the same places, with two changes. Ends are rounded down to whole cache
blocks, since no engine reuses a part of one. And no chunk is longer than `LONGEST`: a prompt whose shared part ends
inside a chunk would lose all of it, and whoever can bring the Sentries to a wrong length would choose how much that
is.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Final

from troth.overlay.hash_radix.errors import ChunkingUnusable

BLOCK: Final = 32
"""Tokens: the unit of every length; an engine's cache blocks divide it (vLLM: 32 on CPU, 16 on CUDA)."""
SEPARATOR: Final = BLOCK
"""δ, tokens."""
LONGEST: Final = 512
"""Tokens of a chunk at most: what a wrong array can cost a search."""
DEFAULT: Final = 128
"""Tokens of a chunk behind the array."""
MOST_LENGTHS: Final = 128
"""Entries of an array; each search pays for them."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """A group's array: `lengths` in tokens, then chunks of `default` tokens without end. Raises ChunkingUnusable."""

    lengths: tuple[int, ...] = ()
    default: int = DEFAULT
    _ends: tuple[int, ...] = field(init=False, repr=False, compare=False)
    identity: bytes = field(init=False, repr=False, compare=False)
    """4 bytes that tell this array from others; `Naming.identity` tells the key as well."""

    def __post_init__(self) -> None:
        if len(self.lengths) > MOST_LENGTHS:
            raise ChunkingUnusable(f"A chunk-length array has at most {MOST_LENGTHS} entries", len(self.lengths))
        for length in (*self.lengths, self.default):
            if not 0 < length <= LONGEST or length % BLOCK:
                raise ChunkingUnusable(f"A chunk has 1 to {LONGEST // BLOCK} blocks of {BLOCK} tokens", length)
        ends, end = [], 0
        for length in self.lengths:
            end += length
            ends.append(end)
        content = struct.pack(f"<{len(self.lengths) + 1}I", *self.lengths, self.default)
        object.__setattr__(self, "_ends", tuple(ends))
        object.__setattr__(self, "identity", hashlib.blake2b(content, digest_size=4, person=b"troth-chunking").digest())

    def ends(self, tokens: int) -> Iterable[int]:
        """Where the chunks end that a prompt of so many tokens fills, ascending."""
        if tokens < self._arrayed:
            return self._ends[: bisect_right(self._ends, tokens)]
        return chain(self._ends, range(self._arrayed + self.default, tokens + 1, self.default))

    def span(self, token: int) -> tuple[int, int]:
        """(start, end) of the chunk that holds this token's place, counted from 0."""
        if token >= self._arrayed:
            start = token - (token - self._arrayed) % self.default
            return start, start + self.default
        place = bisect_right(self._ends, token)
        return (self._ends[place - 1] if place else 0), self._ends[place]

    @property
    def _arrayed(self) -> int:
        return self._ends[-1] if self._ends else 0


def chunking_for(common: Iterable[int], default: int = DEFAULT) -> Chunking:
    """The array that cuts at the ends of these common prompts and `SEPARATOR` behind them, in any order and unaligned.

    Lengths that do not fit in `MOST_LENGTHS` chunks any more are left out, the longest first.
    """
    cuts = {0}
    for length in common:
        end = length - length % BLOCK
        if end > 0:
            cuts |= {end, end + SEPARATOR}
    lengths: list[int] = []
    for start, end in pairwise(sorted(cuts)):
        pieces = [min(LONGEST, end - place) for place in range(start, end, LONGEST)]
        if len(lengths) + len(pieces) > MOST_LENGTHS:
            break
        lengths += pieces
    return Chunking(tuple(lengths), default)
