"""A node as a resident of its schedulers' pools: it reports, and moves where it is told and its operator agreed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from troth.node.errors import HostingRefused
from troth.node.orders.context import NodeContext
from troth.node.pool.agreement import AutoLimits, Kind, LastHostingOrder, accepted, cache_tokens
from troth.node.pool.contacts import Contacts
from troth.node.pool.reporting import Reporting
from troth.protocol.sizes import ModelSizes
from troth.protocol.types import Address, Segment
from troth.protocol.wire_reports import HostingPart, Report

log = logging.getLogger(__name__)

RETRY_SECONDS = 15.0
"""After a move that did not come about, before the same order is tried again: it is repeated with every report."""

Move = Callable[[Segment, Sequence[Segment]], Awaitable[None]]
"""Load a slice, register it with these segments, serve it; raises a NodeError or ChainError with nothing changed."""


@dataclass(frozen=True, slots=True)
class Lent:
    """Bytes of weights and of cache."""

    weights: int
    cache: int


class Resident:
    """Speaks for one running node. Without `agreement` it reports and never moves."""

    def __init__(
        self,
        context: NodeContext,
        lent: Lent,
        device: Kind,
        sizes: ModelSizes,
        *,
        contacts: Contacts,
        sessions: Callable[[], int],
        agreement: AutoLimits | None,
        move: Move,
    ) -> None:
        self._context = context
        self._lent = lent
        self._device = device
        self._sizes = sizes
        self._sessions = sessions
        self._agreement = agreement
        self._move = move
        self._reporting = Reporting(context.operator, self.draft, contacts, self.on_order)
        self._number = -1
        self._moved_at = float("-inf")
        self._not_before = float("-inf")
        self._moving: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Report, and carry orders out, until cancelled."""
        try:
            await self._reporting.run()
        finally:
            if self._moving is not None:
                self._moving.cancel()
                await asyncio.gather(self._moving, return_exceptions=True)

    async def leave(self) -> None:
        """Tell the schedulers that this node goes."""
        await self._reporting.leave()

    def draft(self, scheduler: Address) -> Report:
        """What is to be said now; the sequence is the reporting's."""
        engine, meter = self._context.engine, self._context.meter
        return Report(
            execution_class=self._context.execution_class,
            sequence=0,
            device=self._device,
            memory_bytes=self._lent.weights,
            cache_bytes=self._lent.cache,
            first=engine.slice.first,
            end=engine.slice.end,
            decode_nanoseconds=_nanoseconds(meter.decode_seconds),
            prefill_nanoseconds=_nanoseconds(meter.prefill_seconds),
            cache_tokens=cache_tokens(self._lent.cache, engine.slice, self._sizes),
            running=self._sessions(),
            movable=self._movable_by(scheduler),
            leaving=False,
        )

    def _movable_by(self, scheduler: Address) -> bool:
        """Not in the pause after a move either: others would be placed as if this node moved."""
        if self._agreement is None or self._agreement.scheduler != scheduler:
            return False
        return time.monotonic() - self._moved_at >= self._agreement.pause_seconds

    def on_order(self, scheduler: Address, order: HostingPart) -> None:
        """Begin a move that the operator has agreed to; say why not, otherwise."""
        if self._agreement is None or scheduler != self._agreement.scheduler or self._moving is not None:
            return
        if time.monotonic() < self._not_before:
            return
        place = LastHostingOrder(self._number, time.monotonic() - self._moved_at)
        try:
            hosted, segments = accepted(order, self._agreement, place, self._sizes, self._context.engine.layers)
        except HostingRefused as refusal:
            log.info("an order of %s is not carried out: %s", scheduler, refusal)
            return
        self._moving = asyncio.create_task(self._carry_out(order.number, hosted, segments))

    async def _carry_out(self, number: int, hosted: Segment, segments: Sequence[Segment]) -> None:
        try:
            log.info("moving to layers %s, segments %s", hosted, segments)
            await self._move(hosted, segments)
        except Exception as error:  # noqa: BLE001 - whatever it was, the node serves on where it is
            log.warning("the move did not come about: %s", error)
            self._not_before = time.monotonic() + RETRY_SECONDS
        else:
            self._number, self._moved_at = number, time.monotonic()
            log.info("serving layers %s", hosted)
        finally:
            self._moving = None


def _nanoseconds(seconds: float) -> int:
    return min(int(seconds * 1e9), 10**15)
