"""Regions: machines that are near each other by measured link times (Parallax's region heuristic, section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NEAR_SECONDS = 0.020
"""Link time up to which two machines share a region: below what a continent costs, above what a city does."""
SAMPLED = 32
"""Members whose links make a region's mean: more do not move it."""

Links = Mapping[tuple[str, str], float]
"""Measured one-way seconds from one name to another; a pair may lack either direction."""


@dataclass(frozen=True, slots=True)
class Region:
    """Names in the order of the input, and the mean seconds of a hop among them."""

    names: tuple[str, ...]
    hop_seconds: float


@dataclass(frozen=True, slots=True)
class Atlas:
    """All regions, and the mean seconds of a hop between two of them."""

    regions: tuple[Region, ...]
    across_seconds: float


def regions_of(names: Iterable[str], links: Links, near_seconds: float = NEAR_SECONDS) -> Atlas:
    """Put each name, in sorted order, with the nearest region whose first member is near; otherwise start a region.

    So two members are at most twice `near_seconds` apart as far as link times are distances. A link counts with the
    slower of its two reports: one liar cannot move itself closer. A pair that nobody measured is not near.
    """
    members: list[list[str]] = []
    for name in sorted(set(names)):
        nearest = min(((link(links, region[0], name), place) for place, region in enumerate(members)), default=None)
        if nearest is not None and nearest[0] <= near_seconds:
            members[nearest[1]].append(name)
        else:
            members.append([name])
    across = _mean(link(links, a[0], b[0]) for a in members[:SAMPLED] for b in members[:SAMPLED] if a is not b)
    inside = [
        _mean(link(links, a, b) for a in region[:SAMPLED] for b in region[:SAMPLED] if a != b) for region in members
    ]
    return Atlas(
        tuple(Region(tuple(region), hop or 0.0) for region, hop in zip(members, inside, strict=True)),
        across if across is not None else near_seconds,
    )


def link(links: Links, one: str, other: str) -> float:
    """Seconds between two names: the slower direction; infinite if neither was measured or a report is no time."""
    reports = [seconds for seconds in (links.get((one, other)), links.get((other, one))) if seconds is not None]
    if not reports or not all(math.isfinite(seconds) and seconds >= 0 for seconds in reports):
        return math.inf
    return max(reports)


def _mean(seconds: Iterable[float]) -> float | None:
    known = [value for value in seconds if math.isfinite(value)]
    return sum(known) / len(known) if known else None
