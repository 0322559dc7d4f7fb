"""The node table: each member's slot, load and reputation, and when it was last heard."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from troth.overlay.hash_radix.announcing import INTERVAL
from troth.overlay.hash_radix.errors import GroupFull
from troth.overlay.hash_radix.following import Followed
from troth.overlay.hash_radix.groups import LARGEST_GROUP
from troth.overlay.hash_radix.load import Load

SILENCE = 3 * INTERVAL
"""Seconds without a word after which a member is dead: two updates may be lost."""
REMEMBERED = 8
"""Members that left, per place in the group, whose last sequence is kept."""


@dataclass(slots=True)
class Member:
    """One row. `heard`: our clock at its last update, or when it was listed; `asked`: when we last asked for all."""

    slot: int
    reputation: float
    heard: float
    load: Load = field(default_factory=Load)
    alive: bool = False
    asked: float = -math.inf


class Members:
    """Who is in the group. Only `admit` brings somebody in: the caller takes names from the signed directory.

    Args:
        most: members at most; raises GroupFull beyond.
    """

    def __init__(self, most: int = LARGEST_GROUP) -> None:
        self._most = most
        self._rows: dict[str, Member] = {}
        self._followed: dict[str, Followed] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __getitem__(self, name: str) -> Member:
        return self._rows[name]

    def rows(self) -> Iterator[tuple[str, Member]]:
        """Name and row of each member."""
        yield from self._rows.items()

    def admit(self, name: str, reputation: float, now: float) -> Member:
        """A row for a listed node; of one that has a row, the committee's latest reputation."""
        row = self._rows.get(name)
        if row is None:
            taken = {member.slot for member in self._rows.values()}
            slot = next((slot for slot in range(self._most) if slot not in taken), None)
            if slot is None:
                raise GroupFull(f"A group has at most {self._most} members", name, "Split it by region.")
            row = self._rows[name] = Member(slot, reputation, now)
        row.reputation = reputation
        return row

    def dismiss(self, name: str) -> int | None:
        """The slot of a member that left, free again."""
        row = self._rows.pop(name, None)
        return None if row is None else row.slot

    def followed(self, name: str) -> Followed:
        """How far its updates were followed; outlives the row, so that nobody is brought back by an old update."""
        known = self._followed.pop(name, None) or Followed()
        self._followed[name] = known
        if len(self._followed) > REMEMBERED * self._most:
            oldest = next(name for name in self._followed if name not in self._rows)
            del self._followed[oldest]
        return known

    def silent(self, now: float) -> list[str]:
        """Members that are taken for alive and were not heard for `SILENCE`."""
        return [name for name, row in self._rows.items() if row.alive and now - row.heard > SILENCE]

    def bits(self, names: Mapping[str, object] | set[str] | frozenset[str]) -> int:
        """The bits of those of these names that are members."""
        return sum(1 << self._rows[name].slot for name in names if name in self._rows)
