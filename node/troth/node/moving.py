"""The layers that a running node holds: those that it hosts by the chain, and former ones while they may be asked for.

Whoever was a member at an order's reference block is drawn, paid and slashed for it, whatever it hosts by then. So the
layers of a former slice stay while such orders can be opened, and a session in them until its task can no longer be
committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from troth.chain.adapter import Chain
from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.node.service.bench import Bench
from troth.node.service.node_service import NodeService
from troth.protocol.calls import change_slice
from troth.protocol.contract_types import REFERENCE_AGE
from troth.protocol.types import Segment

log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds to wait until an own transaction shows in the followed chain."""


@dataclass(frozen=True, slots=True)
class Holding:
    """The slice, the former segments that are kept beside it, and those whose sessions have outlived their use."""

    hosted: Segment
    keep: tuple[Segment, ...] = ()
    over: tuple[Segment, ...] = ()


def holding(bench: Bench, at_work: frozenset[Segment]) -> Holding:
    """What the chain wants this node to hold, with sessions about the segments `at_work`.

    A first verification begins with a reference block that is not older than `REFERENCE_AGE`, a second one within two
    commit windows after the block that it is drawn from; either is committed within two commit windows more.
    """
    view, me = bench.view, bench.operator.address
    hosted = view.slice_of(me, bench.execution_class)
    if hosted is None:
        return Holding(bench.engine.slice)
    windows = 2 * view.parameters.commit_window
    called = view.head - max(REFERENCE_AGE, windows)
    finishing = view.segments_of(me, called - windows) & at_work
    keep = view.segments_of(me, called) | finishing
    return Holding(hosted, _outside(keep, hosted), _outside(at_work - finishing, hosted))


def _outside(segments: frozenset[Segment], hosted: Segment) -> tuple[Segment, ...]:
    outside = (one for one in segments if not hosted.first <= one.first < one.end <= hosted.end)
    return tuple(sorted(outside, key=lambda one: (one.first, one.end)))


class Moving:
    """Keeps the engine at what the chain says, and moves the node; runs beside the service."""

    def __init__(
        self,
        bench: Bench,
        service: NodeService,
        chain: Chain,
        key: Key,
        *,
        interval: float = 1.0,
    ) -> None:
        self._bench = bench
        self._service = service
        self._chain = chain
        self._key = key
        self._interval = interval
        self._held: tuple[Holding, Segment | None] | None = None
        self._coming: Segment | None = None
        self._changing = asyncio.Lock()
        self._failure = ""

    @property
    def lacking(self) -> str:
        """Why the slice that the chain says is not served yet; empty when it is."""
        hosted = holding(self._bench, frozenset()).hosted
        if self._bench.engine.holds(hosted):
            return ""
        return f"layers {hosted.first}:{hosted.end} are loading" + (f": {self._failure}" if self._failure else "")

    async def run(self) -> None:
        """Follow until cancelled. What cannot be loaded is logged and tried again; the rest is served meanwhile."""
        while True:
            try:
                await self.step()
            except Exception as error:
                if str(error) != self._failure:
                    log.exception("the layers of this node cannot be loaded")
                self._failure = str(error)
            await asyncio.sleep(self._interval)

    async def step(self) -> None:
        """Hold what is wanted now."""
        wanted, coming = holding(self._bench, self._service.segments), self._coming
        if wanted.over:
            log.warning("sessions in layers that were left long ago are dropped: %s", wanted.over)
            await self._service.end(wanted.over)
        if (wanted, coming) == self._held:
            return
        former = self._bench.engine.slice
        await self._bench.engine.rehost(wanted.hosted, (*wanted.keep, coming) if coming else wanted.keep)
        self._held, self._failure = (wanted, coming), ""
        if former != wanted.hosted:
            log.info("hosting layers %s, before %s; kept for orders before: %s", wanted.hosted, former, wanted.keep)

    async def move(self, hosted: Segment, segments: Sequence[Segment]) -> None:
        """Load `hosted`, change to it on chain, and serve it; `segments` are the groups to be in.

        Former layers stay as long as they are needed. If the transaction fails, the new ones go again.

        Raises:
            ChainRejected: the contract refuses, for example since the slice was changed lately.
            ModelError: the layers cannot be loaded; nothing was sent.
        """
        call = change_slice(self._key.address, hosted, segments)
        simulation = await self._chain.simulate(call, self._key.address)
        if simulation.rejection is not None:
            raise ChainRejected(call.function, simulation.rejection)
        async with self._changing:
            self._coming = hosted
            try:
                await self.step()
                receipt = await self._chain.execute(call, self._key)
                view = self._bench.view
                await view.until(lambda: view.head >= receipt.block, PATIENCE)
            finally:
                self._coming = None
                await self.step()
