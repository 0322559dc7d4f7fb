"""Which nodes of a model form a group (GenTorrent, section 3.3): 50 at most, by region.

Within a region the cut follows a keyed hash under the round's seed, which nobody knew when addresses were chosen: a
crowd of one operator cannot gather in one group.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping

LARGEST_GROUP = 50


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
