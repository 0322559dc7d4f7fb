"""The side of a node whose result is judged: it shows its trace, to the driver or by its own call.

A node that shows nothing has lost, however right it was.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Protocol

from troth.cases import calls, hearing
from troth.cases.courtroom import CallRefused, ChainView, Courtroom
from troth.cases.foreseeing import foreseen
from troth.cases.steps import reveals_now
from troth.cases.supervising import each, watch_blocks
from troth.protocol.market.proceedings import CaseState, NodeReveal
from troth.protocol.market.state import CaseRecord, State
from troth.protocol.market.views import parameters_of, rules_in
from troth.protocol.trace import CommittedTrace
from troth.protocol.types import Address, Hash32

OWN = 5
"""Eighths of the window after which a node shows its part by its own call."""
OPENED_TOGETHER = 4
"""Traces that are read at once: one may be as large as its model's states."""
_log = logging.getLogger(__name__)


class Traces(Protocol):
    """A node's own traces, as long as a case over them can come."""

    async def root_of(self, order: Hash32, segment: int) -> tuple[Hash32, Hash32] | None:
        """The root that a result commits to, and the commitment's salt; None: no such result."""

    async def trace_of(self, order: Hash32, segment: int) -> tuple[CommittedTrace, Hash32] | None:
        """The whole trace of such a result, of which tiles are opened, and that salt; None where its rows are not kept,
        as in an exact class."""


@dataclass(slots=True)
class Defender:
    """Shows one operator's traces in cases over its results."""

    courtroom: Courtroom
    account: Address
    traces: Traces
    depth: int = 0
    _opening: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(OPENED_TOGETHER))

    async def run(self) -> None:
        """Watch until cancelled; a chain that is away is waited for."""
        await watch_blocks(self._look, self.courtroom, "defending results")

    async def _look(self) -> None:
        await self.tick(await self.courtroom.seen())

    async def tick(self, seen: ChainView) -> None:
        """Show on chain where the window comes to its end and the case is not decided."""
        window = parameters_of(seen.state).reveal_window if seen.state.deployed is not None else 0
        cases = seen.state.cases
        due = [
            case_id
            for case_id, record in cases.items()
            if self._is_due(record, seen) and seen.next >= record.state.phase_block + window * OWN // 8
        ]
        await each(due, lambda case_id: self._show_on_chain(seen, case_id, cases[case_id].state))

    async def _show_on_chain(self, seen: ChainView, case_id: Hash32, state: CaseState) -> None:
        async with self._opening:
            shown = await self.show(seen, case_id, state.round)
        if shown is not None:
            await self._send(state, shown)

    def _is_due(self, record: CaseRecord, seen: ChainView) -> bool:
        state = record.state
        if not record.live or state.node != self.account or (state.round, self.account) in record.reveals:
            return False
        return reveals_now(state, rules_in(seen.state, state.execution_class))

    async def show(self, seen: ChainView, case_id: Hash32, round_: int) -> NodeReveal | None:
        """What the node shows, once it is due; None: not yet, or not this node's."""
        record = seen.state.cases.get(case_id)
        if record is None or not record.live or record.state.node != self.account or record.state.round != round_:
            return None
        state, rules = record.state, rules_in(seen.state, record.state.execution_class)
        parameters, believed = parameters_of(seen.state), seen.block - self.depth
        state = await foreseen(self.courtroom, state, rules, parameters, believed) or state
        if not reveals_now(state, rules) or believed < state.phase_block:
            return None
        if rules.exact:
            known = await self.traces.root_of(state.order, state.segment)
            return None if known is None else NodeReveal(*known)
        found = await self.traces.trace_of(state.order, state.segment)
        if found is None:
            return None
        trace, salt = found
        opening = await asyncio.to_thread(trace.open, hearing.sampled_tiles(state, rules))
        siblings = tuple(Hash32(one) for one in opening.siblings)
        return NodeReveal(Hash32(trace.root), salt, opening.tiles, siblings)

    async def opening(self, state: State, case_id: Hash32) -> bytes | None:
        """Root and salt of the judged trace, for reviewers."""
        record = state.cases.get(case_id)
        if record is None or record.state.node != self.account:
            return None
        found = await self.traces.root_of(record.state.order, record.state.segment)
        return None if found is None else found[0] + found[1]

    async def _send(self, state: CaseState, shown: NodeReveal) -> None:
        try:
            await self.courtroom.send(calls.reveal_node(self.courtroom.contracts, state, shown))
        except CallRefused as refused:
            _log.info("the node's showing was not sent: %s", refused)
