"""A site where everyone is near everyone: the atlas of measurements without regions, and of tests."""

from __future__ import annotations

from collections.abc import Iterable

from troth.routing.placement.regions import Atlas, Region


def one_region(names: Iterable[str], hop_seconds: float) -> Atlas:
    """One region with the same hop between any two."""
    return Atlas((Region(tuple(names), hop_seconds),), hop_seconds)
