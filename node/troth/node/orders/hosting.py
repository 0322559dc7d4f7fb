"""The layers that a node holds: those that it hosts by the chain, and former ones while they may be asked for.

Who was a member at an order's reference block is drawn for it, paid and slashed, whatever it hosts by then. So a former
slice stays for as long as orders from before can be admitted and their answers drawn to be checked; a session in it for
the lag beyond; and it is read again where a court needs it, which is told of it many blocks ahead. All of it follows
from the chain, so that a restart holds the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from troth.node.orders.context import NodeContext
from troth.node.orders.service import OrderService
from troth.protocol.errors import InvalidField
from troth.protocol.market.court import last_opening_block
from troth.protocol.market.messages import layers_of
from troth.protocol.market.state import Party, State
from troth.protocol.market.types import Parameters
from troth.protocol.market.views import parameters_of
from troth.protocol.types import Hash32, Segment

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Holding:
    """The slice, the former segments that are kept beside it, and those whose sessions have outlived their use."""

    hosted: Segment
    keep: tuple[Segment, ...] = ()
    over: tuple[Segment, ...] = ()


def hosted_slice(context: NodeContext) -> Segment | None:
    """What the chain says that this node hosts; None if it is not registered in its class."""
    party = _party(context)
    return None if party is None else party.hosted


def holding(context: NodeContext, at_work: Collection[Segment]) -> Holding | None:
    """What the chain wants this node to hold, with sessions about the segments ``at_work``; None if it is no member."""
    party = _party(context)
    if party is None or party.hosted is None:
        return None
    state, block = context.ground.state, context.ground.block
    parameters = parameters_of(state)
    asked = party.hosted_since(max(0, block - asked_for(parameters)))
    finishing = party.hosted_since(max(0, block - asked_for(parameters) - parameters.lag))
    going = {one for one in at_work if any(_inside(one, hosted) for hosted in finishing | {party.hosted})}
    keep = asked | going | _judged(party, state, context.execution_class)
    return Holding(party.hosted, _outside(keep, party.hosted), _outside(set(at_work) - going, party.hosted))


def asked_for(parameters: Parameters) -> int:
    """Blocks for which a former slice is asked for: orders are admitted, and their answers drawn and checked."""
    return last_opening_block(parameters.reference_age, parameters)


class SliceHosting:
    """``step`` is one turn of a `Duty`."""

    def __init__(self, context: NodeContext, service: OrderService) -> None:
        self._context = context
        self._service = service
        self._held: tuple[Holding, Segment | None] | None = None
        self._coming: Segment | None = None
        self._looking = asyncio.Lock()

    @property
    def lacking(self) -> str:
        """Why the slice that the chain says is not served yet; empty when it is."""
        hosted = hosted_slice(self._context)
        if hosted is None or self._context.engine.holds(hosted):
            return ""
        return f"layers {hosted.first}:{hosted.end} are loading"

    async def step(self) -> None:
        """Hold what is wanted now; raises ModelError where it cannot be loaded, and serves the rest meanwhile."""
        async with self._looking:
            wanted, coming = holding(self._context, self._service.segments), self._coming
            if wanted is None:
                return
            if wanted.over:
                log.warning("sessions in layers that were left long ago are dropped: %s", wanted.over)
                await self._service.end(wanted.over)
            if (wanted, coming) == self._held:
                return
            former = self._context.engine.slice
            await self._context.engine.rehost(wanted.hosted, (*wanted.keep, coming) if coming else wanted.keep)
            self._held = (wanted, coming)
            if former != wanted.hosted:
                log.info("hosting layers %s, before %s; kept for orders before: %s", wanted.hosted, former, wanted.keep)

    @asynccontextmanager
    async def expecting(self, hosted: Segment) -> AsyncIterator[None]:
        """Hold these layers too while this lasts; raises ModelError where they cannot be loaded."""
        self._coming = hosted
        try:
            await self.step()
            yield
        finally:
            self._coming = None
            await self.step()


def _party(context: NodeContext) -> Party | None:
    party = context.ground.state.parties.get(context.me)
    return party if party is not None and party.execution_class == context.execution_class else None


def _judged(party: Party, state: State, class_id: Hash32) -> set[Segment]:
    """Segments of cases under way that this node may be drawn to judge, or is judged in, by what it hosted then."""
    found = set()
    for case in state.cases.values():
        if not case.live or case.state.execution_class != class_id:
            continue
        hosted = party.hosted_at(case.state.reference_block)
        # Client and scheduler sign what they like: a split that is none keeps no layers.
        with suppress(InvalidField):
            span = layers_of(case.state.ends, case.state.segment)
            if hosted is not None and _inside(span, hosted):
                found.add(span)
    return found


def _inside(segment: Segment, hosted: Segment) -> bool:
    return hosted.first <= segment.first and segment.end <= hosted.end


def _outside(segments: Collection[Segment], hosted: Segment) -> tuple[Segment, ...]:
    outside = {one for one in segments if not _inside(one, hosted)}
    return tuple(sorted(outside, key=lambda one: (one.first, one.end)))
