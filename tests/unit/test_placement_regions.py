"""Regions from link times."""

from __future__ import annotations

import math

from troth.routing.placement.regions import regions_of

TWO = [f"{site}{number}" for number in range(4) for site in ("east", "west")]
LINKS = {(a, b): 0.001 if a[:4] == b[:4] else 0.08 for a in TWO for b in TWO if a != b}


def test_two_sites_are_two_regions_whatever_the_order() -> None:
    atlas = regions_of(TWO, LINKS)
    assert atlas == regions_of(reversed(TWO), LINKS)
    assert [{name[:4] for name in region.names} for region in atlas.regions] == [{"east"}, {"west"}]
    assert math.isclose(atlas.regions[0].hop_seconds, 0.001)
    assert math.isclose(atlas.across_seconds, 0.08)


def test_a_liar_does_not_move_closer_than_the_other_side_measured() -> None:
    lies = LINKS | {("west0", other): 0.0001 for other in TWO if other != "west0"}
    assert [len(region.names) for region in regions_of(TWO, lies).regions] == [4, 4]


def test_who_was_never_measured_is_a_region_of_its_own() -> None:
    assert [len(region.names) for region in regions_of([*TWO, "new"], LINKS).regions] == [4, 1, 4]


def test_times_that_are_none_are_not_near() -> None:
    for nonsense in (math.nan, -1.0, math.inf):
        assert len(regions_of(["a", "b"], {("a", "b"): nonsense, ("b", "a"): 0.001}).regions) == 2
