"""Whatever the directory lists: paths are disjoint, and an error means that there are none."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.listings import NOW, listed, shares_nothing

from troth.overlay.paths.choice import Crowd, choose
from troth.overlay.paths.errors import NoDisjointPaths


@st.composite
def crowds(draw, largest: int):
    count = draw(st.integers(0, largest))
    return [
        listed(
            number,
            host=f"10.{draw(st.integers(0, 11))}.{number}.1",
            operator=f"0x{draw(st.integers(0, 11)):x}",
            bandwidth=draw(st.sampled_from([0, 1, 1_000, 10**15])),
            age=draw(st.integers(-(10**6), 10**7)),
        )
        for number in range(count)
    ]


@pytest.mark.slow
@given(crowds(40), st.integers(0, 8), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99), st.data())
@settings(max_examples=150)
def test_paths_share_nothing_with_each_other_or_with_those_in_use(relays, guards, count, hops, seed, data) -> None:
    descriptors = [one.relay for one in relays]
    chosen = descriptors[:guards]
    used = [data.draw(st.lists(st.sampled_from(descriptors), max_size=2, unique=True))] if descriptors else []
    avoid = frozenset(relay.name for relay in descriptors[30:])
    try:
        paths = choose(Crowd(relays, NOW), chosen, count, hops=hops, used=used, avoid=avoid, random=Random(seed))
    except NoDisjointPaths:
        return
    assert len(paths) == count
    assert all(len(path) == hops and path[0] in chosen for path in paths)
    assert not avoid & {relay.name for path in paths for relay in path[1:]}
    assert shares_nothing(paths)
    for path in paths:
        for relay in path:
            assert all(shares_nothing([[relay, other]]) for other in used[0])


@pytest.mark.slow
@given(crowds(9), st.integers(0, 4), st.integers(1, 2), st.integers(0, 9))
@settings(max_examples=150)
def test_an_error_says_that_every_choice_was_impossible(relays, guards, count, seed) -> None:
    descriptors = [one.relay for one in relays]
    possible = any(
        shares_nothing([several]) and sum(relay in descriptors[:guards] for relay in several) >= count
        for several in combinations(descriptors, 3 * count)
    )
    try:
        choose(Crowd(relays, NOW), descriptors[:guards], count, random=Random(seed))
    except NoDisjointPaths:
        assert not possible
    else:
        assert possible
