"""The life of a dispute as it follows from the contract's events, and what each side does next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from troth.protocol.calls import Call
from troth.protocol.disputes import calls, game, turns
from troth.protocol.disputes.calls import (
    Defended,
    DisputeEvent,
    DisputeLost,
    DisputeMoot,
    DisputeOpened,
    DisputesDeployed,
    DisputeWon,
    NodeChosen,
    NodesShown,
    RowAsked,
    RowGiven,
    SumAsked,
    SumGiven,
    TensorChosen,
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


def lives(
    events: Iterable[DisputeEvent], window: int, known: Mapping[Hash32, Life] | None = None
) -> Mapping[Hash32, Life]:
    """All disputes of a contract by its events, in their order; a turn has ``window`` blocks.

    ``known``: what they were before these events. Raises InvalidField where an event is missing, InvalidOpening where
    what was shown fills no tree.
    """
    found = dict(known or {})
    for event in events:
        if not isinstance(event, DisputesDeployed):
            found[event.dispute] = after(found.get(event.dispute), event, window)
    return found


def after(life: Life | None, event: DisputeEvent, window: int) -> Life:
    """A dispute after one more of its events; errors as ``lives``."""
    if isinstance(event, DisputesDeployed) or (life is None) != isinstance(event, DisputeOpened):
        raise InvalidField("The event is none of a dispute that was opened once", event, "Read all of the contract's.")
    if life is None:
        assert isinstance(event, DisputeOpened)
        return _opened(event, window)
    if isinstance(event, Ending):
        return replace(life, ending=event)
    state, more = _turned(life, event)
    if not isinstance(event, Defended):
        state = replace(state, deadline=event.meta.block + window)
    looks = (*life.looks, ShownLevels(state, event.nodes)) if isinstance(event, NodesShown) else life.looks
    return replace(life, state=state, looks=looks, **more)


def _opened(event: DisputeOpened, window: int) -> Life:
    state = turns.begun(
        event.matter, event.accused, event.accuser, event.result, offence_block=event.offence_block, bond=event.bond,
        left=event.left, deadline=event.meta.block + window,
    )  # fmt: skip
    return Life(event.dispute, event.matter, event.shape, state)


def _turned(life: Life, event: DisputeEvent) -> tuple[Dispute, dict[str, Any]]:
    """The state after a turn, but for its deadline, and what else is known then."""
    state, nodes = life.state, life.looks[-1].nodes if life.looks else ()
    match event:
        case Defended():
            return turns.defended(state, event.nudge, event.moved), {}
        case NodesShown():
            return turns.shown(state, event.nodes), {}
        case NodeChosen():
            return turns.chosen(state, nodes, event.index), {}
        case TensorChosen():
            return turns.tensor_chosen(state, nodes, event.index, event.left), {}
        case RowAsked():
            return turns.row_asked(state, event.position), {}
        case RowGiven():
            return turns.row_given(state), {"given": event.row}
        case SumAsked():
            return turns.sum_asked(state, nodes, event.index, event.number), {}
        case SumGiven():
            return turns.sum_given(state, event.parts), {"parts": event.parts}
        case _:
            raise InvalidField("This event is no turn", event, "Read the contract's own.")


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
    return calls.give_sum(life.id, state, packed(parts))


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
