"""The Sentry: at which lengths do many prompts stop being alike? (PlanetServe, appendix A3)

It keeps a sample of prompts as rows of hashed blocks, under a secret of this process: no text is held. Sorted, each row
stands beside those it shares most with, and every run of neighbours that share at least b blocks is an inner node of
their radix tree: a common prompt of b blocks. The lengths that save most tokens are proposed. What more than a third
of the members propose is the group's: a few liars cannot set a length, and the array bounds what one can cost.
"""

from __future__ import annotations

import hashlib
import random
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from troth.routing.prefixes.naming import BLOCK, TOKEN

ROUND: Final = 10_000
"""Requests until the array is looked at again (section 5.1)."""
SAMPLE: Final = 256
"""Prompts kept."""
DEEPEST: Final = 512
"""Blocks looked at: 16,384 tokens."""
MOST_COMMON: Final = 16
"""Lengths proposed at most."""
LEAST_SHARE: Final = 1 / 32
"""Of the sample must share a prefix before it counts as common."""

_Row: TypeAlias = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CommonLength:
    """`tokens` long, and `saved` tokens of the sample are in it and in no shorter common prompt."""

    tokens: int
    saved: int


class Sentry:
    """Watches the prompts that reach one node; `chance` draws the sample (reservoir, each prompt alike likely)."""

    def __init__(self, chance: random.Random, sample: int = SAMPLE) -> None:
        self._chance, self._sample = chance, sample
        self._secret = secrets.token_bytes(32)
        self._rows: list[_Row] = []
        self.seen = 0

    def observe(self, tokens: bytes) -> None:
        """Note a prompt, packed. What is not drawn for the sample costs nothing."""
        self.seen += 1
        if len(self._rows) < self._sample:
            self._rows.append(self._row(tokens))
            return
        place = self._chance.randrange(self.seen)
        if place < self._sample:
            self._rows[place] = self._row(tokens)

    def common(self) -> tuple[CommonLength, ...]:
        """The lengths that save most, ascending; none before two prompts are alike."""
        rows = sorted(self._rows)
        least = max(2, round(len(rows) * LEAST_SHARE))
        saved: Counter[int] = Counter()
        for blocks, above, members in _inner_nodes(rows):
            if members >= least:
                saved[blocks * BLOCK] += (blocks - above) * BLOCK * (members - 1)
        best = sorted(saved.items(), key=lambda item: (-item[1], item[0]))[:MOST_COMMON]
        return tuple(CommonLength(tokens, worth) for tokens, worth in sorted(best))

    def start_round(self) -> None:
        """Forget the sample, so that the next round's is of its own time."""
        self._rows.clear()
        self.seen = 0

    def _row(self, tokens: bytes) -> _Row:
        size = BLOCK * TOKEN
        blocks = min(DEEPEST, len(tokens) // size)
        return tuple(
            hashlib.blake2b(tokens[place * size : place * size + size], digest_size=8, key=self._secret).digest()
            for place in range(blocks)
        )


def agreed(proposals: Mapping[str, Iterable[int]], members: int) -> tuple[int, ...]:
    """The lengths that more than a third of all `members` propose, in tokens, ascending, `MOST_COMMON` at most.

    Of each proposal only its first `MOST_COMMON` lengths count, each once. Where too many are agreed the most proposed
    stay, of equals the shorter. The same proposals give the same answer everywhere.
    """
    votes: Counter[int] = Counter()
    for lengths in proposals.values():
        votes.update(set(list(lengths)[:MOST_COMMON]))
    enough = [(length, count) for length, count in votes.items() if 3 * count > members]
    chosen = sorted(enough, key=lambda item: (-item[1], item[0]))[:MOST_COMMON]
    return tuple(sorted(length for length, _ in chosen))


def _inner_nodes(rows: Sequence[_Row]) -> Iterable[tuple[int, int, int]]:
    """(blocks shared, blocks that its parent shares, rows below) of each inner node of the sorted rows' radix tree."""
    open_nodes: list[tuple[int, int]] = []  # (blocks shared, first row), ever more blocks
    for place in range(1, len(rows) + 1):
        shared = _alike(rows[place - 1], rows[place]) if place < len(rows) else 0
        first = place - 1
        while open_nodes and open_nodes[-1][0] > shared:
            blocks, first = open_nodes.pop()
            above = max(shared, open_nodes[-1][0] if open_nodes else 0)
            yield blocks, above, place - first
        if shared and (not open_nodes or open_nodes[-1][0] < shared):
            open_nodes.append((shared, first))


def _alike(one: _Row, other: _Row) -> int:
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))
