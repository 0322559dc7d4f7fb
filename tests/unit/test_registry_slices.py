"""Changed slices in the fold: what a node hosts, when it may move again, and what it can still be drawn for."""

from __future__ import annotations

import pytest
from support.registry_events import moved, registered

from troth.protocol.errors import InvalidField
from troth.protocol.events import LogMeta, SliceChanged
from troth.protocol.fold import fold
from troth.protocol.identifiers import group_id
from troth.protocol.state import State
from troth.protocol.typed_data import address_of
from troth.protocol.types import ZERO_HASH, Hash32, Segment

NODE, OTHER = address_of(b"\x01" * 32), address_of(b"\x02" * 32)
CLASS = Hash32(b"c" * 32)
LOWER, UPPER, MIDDLE = Segment(0, 2), Segment(2, 4), Segment(1, 3)


def stage() -> State:
    return registered(registered(State(), NODE, CLASS, LOWER, block=10), OTHER, CLASS, LOWER, block=11)


def test_the_slice_and_when_it_may_change_again() -> None:
    before = stage()
    assert (before.nodes[NODE].slice, before.nodes[NODE].kept_until) == (LOWER, 0)
    after = moved(before, NODE, UPPER, block=50)
    assert (after.nodes[NODE].slice, after.nodes[NODE].kept_until) == (UPPER, 250)
    assert after.nodes[OTHER] == before.nodes[OTHER]
    assert after.accounts == before.accounts


def test_groups_remember_who_was_there() -> None:
    state = moved(stage(), NODE, UPPER, block=50)
    lower, upper = (state.groups[group_id(CLASS, segment)] for segment in (LOWER, UPPER))
    assert [lower.members_at(block) for block in (10, 11, 49, 50, 51)] == [
        [], [NODE], [NODE, OTHER], [None, OTHER], [None, OTHER],
    ]  # fmt: skip
    assert [upper.members_at(block) for block in (50, 51)] == [[], [NODE]]


def test_what_a_node_can_be_drawn_for_since_a_block() -> None:
    state = moved(moved(stage(), NODE, UPPER, (UPPER, Segment(3, 4)), block=50), NODE, MIDDLE, block=300)
    assert state.segments_of(NODE, 0) == {LOWER, UPPER, Segment(3, 4), MIDDLE}
    assert state.segments_of(NODE, 49) == {LOWER, UPPER, Segment(3, 4), MIDDLE}
    assert state.segments_of(NODE, 50) == {UPPER, Segment(3, 4), MIDDLE}
    assert state.segments_of(NODE, 299) == {UPPER, Segment(3, 4), MIDDLE}
    assert state.segments_of(NODE, 300) == {MIDDLE}
    assert state.segments_of(NODE, 10_000) == {MIDDLE}
    assert state.segments_of(OTHER, 10_000) == {LOWER}


def test_who_came_and_went_in_one_block_was_never_there() -> None:
    state = moved(stage(), NODE, UPPER, block=10)
    assert state.segments_of(NODE, 0) == {UPPER}


def test_a_slice_of_nobody_cannot_change() -> None:
    with pytest.raises(InvalidField):
        fold([SliceChanged(NODE, 0, 1, LogMeta(1, 0, ZERO_HASH, ZERO_HASH))], State())
