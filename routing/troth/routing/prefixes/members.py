"""The node table of a group: which nodes form it, their slots and loads, and when each was last heard.

Within a region the cut follows a keyed hash under the round's seed, which nobody knew when addresses were chosen: a
crowd of one operator cannot gather in one group.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from troth.routing.prefixes.announcing import INTERVAL
from troth.routing.prefixes.errors import GroupFull
from troth.routing.prefixes.following import UpdateFollower
from troth.routing.prefixes.update import NodeLoad

LARGEST_GROUP = 50
SILENCE = 3 * INTERVAL
"""Seconds without a word after which a member is dead: two updates may be lost."""
REMEMBERED = 8
"""Members that left, per place in the group, whose last sequence is kept."""


def split(regions: Mapping[str, str], seed: bytes, largest: int = LARGEST_GROUP) -> tuple[tuple[str, ...], ...]:
    """Groups of member names, each sorted; the same for equal arguments.

    Args:
        regions: the region of each member.
        seed: the round's public randomness, at most 64 bytes.
        largest: members of a group at most.

    All stay together while they may. Else each region is cut into the fewest parts, equal but for one member; regions
    that are too small for a group of their own size share one while all of both fit.
    """
    if len(regions) <= largest:
        return (tuple(sorted(regions)),) if regions else ()
    members = defaultdict(list)
    for name, region in regions.items():
        members[region].append(name)
    parts: list[list[str]] = []
    for region in sorted(members):
        names = sorted(members[region], key=lambda name: _place(name, seed))
        count = -(-len(names) // largest)
        parts += [names[place::count] for place in range(count)]
    groups: list[list[str]] = []
    for part in sorted(parts, key=len, reverse=True):
        room = next((group for group in groups if len(group) + len(part) <= largest), None)
        if room is None:
            groups.append(part)
        else:
            room += part
    return tuple(tuple(sorted(group)) for group in groups)


def _place(name: str, seed: bytes) -> bytes:
    return hashlib.blake2b(name.encode(), key=seed, digest_size=16).digest()


@dataclass(slots=True)
class GroupMember:
    """One row. `heard`: our clock at its last update, or when it was listed; `asked`: when we last asked for all."""

    slot: int
    reputation: float
    heard: float
    load: NodeLoad = field(default_factory=NodeLoad)
    alive: bool = False
    asked: float = -math.inf


class GroupMembers:
    """Who is in the group. Only `admit` brings somebody in: the caller takes names from the signed directory.

    Args:
        most: members at most; raises GroupFull beyond.
    """

    def __init__(self, most: int = LARGEST_GROUP) -> None:
        self._most = most
        self._rows: dict[str, GroupMember] = {}
        self._followed: dict[str, UpdateFollower] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __getitem__(self, name: str) -> GroupMember:
        return self._rows[name]

    def rows(self) -> Iterator[tuple[str, GroupMember]]:
        """Name and row of each member."""
        yield from self._rows.items()

    def admit(self, name: str, reputation: float, now: float) -> GroupMember:
        """A row for a listed node; of one that has a row, the committee's latest reputation."""
        row = self._rows.get(name)
        if row is None:
            taken = {member.slot for member in self._rows.values()}
            slot = next((slot for slot in range(self._most) if slot not in taken), None)
            if slot is None:
                raise GroupFull(f"A group has at most {self._most} members", name, "Split it by region.")
            row = self._rows[name] = GroupMember(slot, reputation, now)
        row.reputation = reputation
        return row

    def dismiss(self, name: str) -> int | None:
        """The slot of a member that left, free again."""
        row = self._rows.pop(name, None)
        return None if row is None else row.slot

    def followed(self, name: str) -> UpdateFollower:
        """How far its updates were followed; outlives the row, so that nobody is brought back by an old update."""
        known = self._followed.pop(name, None) or UpdateFollower()
        self._followed[name] = known
        if len(self._followed) > REMEMBERED * self._most:
            oldest = next(name for name in self._followed if name not in self._rows)
            del self._followed[oldest]
        return known

    def silent(self, now: float) -> list[str]:
        """Members that are taken for alive and were not heard for `SILENCE`."""
        return [name for name, row in self._rows.items() if row.alive and now - row.heard > SILENCE]
