"""A node's registration and its changes of slice as the events that the contract would emit."""

from __future__ import annotations

from collections.abc import Sequence

from troth.protocol.events import LogMeta, NodeRegistered, SliceChanged, SlotFilled, SlotVacated
from troth.protocol.fold import fold
from troth.protocol.identifiers import group_id
from troth.protocol.state import State
from troth.protocol.types import ZERO_HASH, Address, Hash32, Segment


def registered(state: State, node: Address, class_: Hash32, hosted: Segment, *, block: int) -> State:
    """The state after a node registered for its whole slice."""
    place = LogMeta(block, 0, ZERO_HASH, ZERO_HASH)
    joined = NodeRegistered(
        node, node, class_, node, hosted.first, hosted.end, "https://node.example", ZERO_HASH, 10, place
    )
    return _filled(fold([joined], state), node, class_, [hosted], place)


def moved(state: State, node: Address, hosted: Segment, segments: Sequence[Segment] = (), *, block: int) -> State:
    """The state after a node changed its slice: out of all its groups, into those of the segments."""
    place, class_ = LogMeta(block, 0, ZERO_HASH, ZERO_HASH), state.nodes[node].execution_class
    left = [
        SlotVacated(group, node, slot, block, place)
        for group, record in state.groups.items()
        for slot, history in enumerate(record.slots)
        if history[-1].operator == node and history[-1].to_block == 0
    ]
    changed = SliceChanged(node, hosted.first, hosted.end, place)
    return _filled(fold([*left, changed], state), node, class_, segments or [hosted], place)


def _filled(state: State, node: Address, class_: Hash32, segments: Sequence[Segment], place: LogMeta) -> State:
    for segment in segments:
        group = group_id(class_, segment)
        record = state.groups.get(group)
        slot = len(record.slots) if record else 0
        filled = SlotFilled(group, node, class_, segment.first, segment.end, slot, place.block + 1, place)
        state = fold([filled], state)
    return state
