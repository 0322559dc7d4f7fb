"""What each turn makes of a dispute's state: the contract keeps the state's hash, and tells of a turn only what is new.

Nothing is judged here: whether a turn may be taken is for the contract to say, and for an auditor to say again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from troth.protocol.disputes.game import Dispute, DisputeTurn, Matter, stride
from troth.protocol.disputes.tree import root_over
from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.market.messages import state_hash
from troth.protocol.types import ZERO_HASH, Address, Hash32

ELSEWHERE = "Read the events of the deployment's own contract."


def begun(matter: Matter, accused: Address, accuser: Address, result: Hash32, **rest: int) -> Dispute:
    """The first state; ``rest``: ``offence_block``, ``bond``, ``left`` and ``deadline``."""
    return Dispute(
        matter=state_hash(matter), result=result, accused=accused, accuser=accuser, turn=DisputeTurn.ACCUSED,
        root=ZERO_HASH, node=ZERO_HASH, in_tensor=False, tensor=0, place=0, shown=0, asked=0, nudge=0, moved=0,
        number=0, parts=ZERO_HASH, **rest,
    )  # fmt: skip


def defended(state: Dispute, nudge: int, moved: int) -> Dispute:
    """The accused names a nudge, so that there are twice as many tensors; what it shows follows."""
    return replace(state, nudge=nudge, moved=moved, left=state.left + 1)


def shown(state: Dispute, nodes: Sequence[Hash32]) -> Dispute:
    """The accused showed nodes below the one that was named; raises InvalidField where they are others."""
    root, levels = root_over(nodes), stride(state.left)
    first = state.root == ZERO_HASH
    if len(nodes) != 1 << levels or (not first and root != state.node):
        raise InvalidField("The accused showed other nodes than those it committed to", root, ELSEWHERE)
    return replace(state, root=root if first else state.root, node=root, shown=levels, turn=DisputeTurn.ACCUSER)


def chosen(state: Dispute, nodes: Sequence[Hash32], index: int) -> Dispute:
    """The accuser named one of the nodes that were shown last."""
    if not 0 <= index < len(nodes):
        raise InvalidField(f"The accused showed {len(nodes)} nodes", index, ELSEWHERE)
    place, left = state.place << state.shown | index, state.left - state.shown
    return replace(state, node=nodes[index], place=place, left=left, shown=0, turn=DisputeTurn.ACCUSED)


def tensor_chosen(state: Dispute, nodes: Sequence[Hash32], index: int, left: int) -> Dispute:
    """The accuser named a tensor; ``left``: levels above its words."""
    found = chosen(state, nodes, index)
    return replace(found, in_tensor=True, tensor=found.place, place=0, left=left)


def row_asked(state: Dispute, position: int) -> Dispute:
    """The accuser asked for a signed row."""
    return replace(state, asked=position + 1, turn=DisputeTurn.ROW)


def row_given(state: Dispute) -> Dispute:
    """The accused gave it."""
    return replace(state, turn=DisputeTurn.ACCUSER)


def sum_asked(state: Dispute, nodes: Sequence[Hash32], index: int, number: int) -> Dispute:
    """The accuser named a word, and asked for the parts of one of its numbers."""
    return replace(chosen(state, nodes, index), number=number + 1, turn=DisputeTurn.SUM)


def sum_given(state: Dispute, parts: bytes) -> Dispute:
    """The accused gave them."""
    return replace(state, parts=Hash32(keccak256(parts)), turn=DisputeTurn.ACCUSER)
