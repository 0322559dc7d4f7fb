"""The life of a dispute as it follows from the contract's events, and what each side does next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from troth.protocol.calls import Call
from troth.protocol.disputes import calls, game
from troth.protocol.disputes.calls import (
    DisputeEvent,
    DisputeLost,
    DisputeMoot,
    DisputeMoved,
    DisputeOpened,
    DisputeWon,
    NodesShown,
    RowGiven,
    SumGiven,
)
from troth.protocol.disputes.game import CanonicalTrace, Dispute, DisputeTurn, Matter, NamedNode, SeenTrace
from troth.protocol.disputes.segment_trace import DoubledTrace, SegmentTrace
from troth.protocol.disputes.sums import packed
from troth.protocol.errors import InvalidField
from troth.protocol.market.token_proofs import ShownRow
from troth.protocol.types import Hash32

Ending = DisputeWon | DisputeLost | DisputeMoot


@dataclass(frozen=True, slots=True)
class ShownLevels:
    """What the accused showed at one turn, and the state after it."""

    state: Dispute
    nodes: tuple[Hash32, ...]


@dataclass(frozen=True, slots=True)
class Life:
    """A dispute from its opening to its end.

    ``given``: the signed row, where the accuser had to ask for it; ``parts``: of a long sum, likewise.
    """

    id: Hash32
    matter: Matter
    shape: bytes
    state: Dispute
    looks: tuple[ShownLevels, ...] = ()
    ending: Ending | None = None
    given: ShownRow | None = None
    parts: bytes = b""

    def seen(self, own: CanonicalTrace) -> SeenTrace:
        """The accused's trace as far as it was shown, for who has the true one."""
        trace = SeenTrace(own)
        for look in self.looks:
            trace.note(look.state, look.nodes)
        return trace


def lives(events: Iterable[DisputeEvent]) -> Mapping[Hash32, Life]:
    """All disputes of a contract by its events, in their order; raises InvalidField where an event is missing."""
    found: dict[Hash32, Life] = {}
    opened: dict[Hash32, DisputeOpened] = {}
    shown: dict[Hash32, tuple[Hash32, ...]] = {}
    for event in events:
        match event:
            case DisputeOpened():
                opened[event.dispute] = event
            case NodesShown():
                shown[event.dispute] = event.nodes
            case DisputeMoved():
                nodes = shown.pop(event.dispute, None)
                found[event.dispute] = _moved(found.get(event.dispute), opened.get(event.dispute), event, nodes)
            case RowGiven():
                found[event.dispute] = replace(_known(found.get(event.dispute), event.dispute), given=event.row)
            case SumGiven():
                found[event.dispute] = replace(_known(found.get(event.dispute), event.dispute), parts=event.parts)
            case DisputeWon() | DisputeLost() | DisputeMoot():
                found[event.dispute] = replace(_known(found.get(event.dispute), event.dispute), ending=event)
            case _:
                pass
    return found


def _moved(
    life: Life | None, opened: DisputeOpened | None, moved: DisputeMoved, nodes: tuple[Hash32, ...] | None
) -> Life:
    if life is None:
        if opened is None:
            return _known(None, moved.dispute)
        return Life(moved.dispute, opened.matter, opened.shape, moved.state)
    looks = life.looks if nodes is None else (*life.looks, ShownLevels(moved.state, nodes))
    return replace(life, state=moved.state, looks=looks)


def _known(life: Life | None, dispute: Hash32) -> Life:
    if life is None:
        raise InvalidField(
            "A dispute moved that was never opened", dispute, "Read the chain from the contract's block."
        )
    return life


def answer(life: Life, trace: CanonicalTrace) -> Call:
    """The accused's turn."""
    return calls.show(life.id, life.state, game.nodes_to_show(life.state, trace))


def defending(life: Life, trace: DoubledTrace, nudge: int) -> Call:
    """The accused's first turn, where a nudge moves its row as rounding did."""
    state = replace(life.state, left=life.state.left + 1)
    return calls.defend(life.id, life.state, nudge, trace.most_moved, game.nodes_to_show(state, trace))


def giving_sum(life: Life, trace: SegmentTrace | DoubledTrace) -> Call:
    """The accused's turn where the parts of a sum were asked for."""
    state = life.state
    place = trace.layout.place(state.tensor, state.place, state.number - 1)
    parts = () if place is None else trace.parts(place)
    return calls.give_sum(life.id, state, life.matter, life.shape, packed(parts))


def pointed(life: Life, own: CanonicalTrace) -> NamedNode | None:
    """What the accuser points at: the first that differs of what was shown last; None where nothing does."""
    look = life.looks[-1]
    index = game.first_difference(life.state, look.nodes, own)
    return None if index is None else game.choice_of(look.nodes, index)


def at_word(life: Life) -> bool:
    """Whether what was shown last are words, so that the accuser's turn is to convict."""
    return life.state.in_tensor and life.state.shown == life.state.left


def choosing(life: Life, choice: NamedNode) -> Call:
    """The accuser's turn before the last one."""
    if life.state.shown < life.state.left:
        return calls.choose(life.id, life.state, choice)
    return calls.choose_tensor(life.id, life.state, life.matter, life.shape, choice)


def ending_by_silence(life: Life, block: int) -> Call | None:
    """What ends a dispute in which the other side let its turn pass, in the next block; None before."""
    if life.ending is not None or block < life.state.deadline:
        return None
    ends = calls.close if life.state.turn == DisputeTurn.ACCUSER else calls.silent
    return ends(life.id, life.state)
