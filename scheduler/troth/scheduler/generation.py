"""From the drawn parties to the last token: attempts, each with one candidate per segment, until one goes through."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from troth.overlay.errors import OverlayError
from troth.overlay.operator import Operator
from troth.protocol.logprobs import Logprobs
from troth.protocol.types import Address
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.chains.choosing import Chains
from troth.scheduler.entry_choice import EntryChoice
from troth.scheduler.hop import Hop
from troth.scheduler.patience import Patience
from troth.scheduler.peers import Peers
from troth.scheduler.pipeline import OnToken, Pipeline
from troth.scheduler.records import Generated, Generating
from troth.scheduler.task_errors import HopFailed, NoCandidateLeft
from troth.scheduler.timing import Breakdown
from troth.scheduler.trace_store import TaskTraces

log = logging.getLogger(__name__)

CONNECT_SECONDS = 1.0
"""How long the choice among candidates waits for connections: a candidate that is not there by then comes last."""

OnAttempt = Callable[[Generating], Awaitable[None]]


class Generation:
    """One task's generation. A segment whose inferencer failed goes to its next candidate, at the next attempt."""

    def __init__(
        self,
        task: AdmittedTask,
        *,
        traces: TaskTraces,
        peers: Peers,
        scheduler: Operator,
        spent: Breakdown,
        patience: Patience,
        chains: Chains | None = None,
        entry_choice: EntryChoice | None = None,
    ) -> None:
        """`entry_choice` names the first attempt's inferencer of a pipeline of one segment."""
        self._chains = chains
        self._entry_choice = entry_choice
        self._wanted: Address | None = None
        self._task = task
        self._traces = traces
        self._peers = peers
        self._scheduler = scheduler
        self._spent = spent
        self._patience = patience
        self._failed: set[tuple[int, Address]] = set()
        self._tokens: list[int] = []
        self._hops: list[Hop] = []

    async def run(self, on_attempt: OnAttempt, on_token: OnToken) -> Generated:
        """Generate to the end; raises NoCandidateLeft. `on_attempt` is awaited before an attempt begins."""
        warm = self._peers.warm(self._all_candidates(), CONNECT_SECONDS)
        if self._entry_choice is None:
            await warm
        else:
            _, self._wanted = await asyncio.gather(warm, self._entry_choice.wait())
        attempt = 0
        while True:
            chosen = self._choose_all()
            await on_attempt(Generating(attempt, chosen))
            try:
                finished = await self._pipeline(attempt, chosen, on_token).run()
            except HopFailed as failure:
                attempt = self._note(attempt, failure)
            except asyncio.CancelledError:
                # Whoever used up the window comes last in the next choice.
                self._remember_speed()
                raise
            else:
                self._traces.sync()
                self._remember_speed()
                return Generated(attempt, chosen, tuple(self._tokens), finished)

    async def replay(
        self, generated: Generated, failure: HopFailed, on_attempt: OnAttempt, *, newest_attempt: int
    ) -> Generated:
        """The same output from other inferencers, after one could not answer for it; raises NoCandidateLeft.

        `newest_attempt` is the last one that was begun, by this process or before a restart: rows of an attempt may
        have been countersigned already, and other rows at the same positions would convict the scheduler.
        """
        self._tokens[:] = generated.tokens
        attempt = self._note(newest_attempt, failure)
        while True:
            chosen = self._choose_all()
            await on_attempt(Generating(attempt, chosen))
            try:
                await self._pipeline(attempt, chosen, _nothing_new).replay()
            except HopFailed as next_failure:
                attempt = self._note(attempt, next_failure)
            else:
                self._traces.sync()
                return Generated(attempt, chosen, generated.tokens, generated.finished)

    def _note(self, attempt: int, failure: HopFailed) -> int:
        """Remember who failed; the number of the next attempt."""
        self._remember_speed()
        log.warning("attempt %d ended after %d tokens: %s", attempt, len(self._tokens), failure)
        self._failed.add((failure.segment, Address(failure.operator)))
        self._peers.note_failure(Address(failure.operator))
        return attempt + 1

    def _remember_speed(self) -> None:
        """How long each inferencer took for the last token: the next choice among candidates goes by it."""
        for hop in self._hops:
            self._peers.note_latency(hop.operator, hop.latency)
            if self._chains is not None and hop.decoding is not None:
                segment = self._task.assignment.segments[hop.segment]
                self._chains.note_answer(self._task, hop.operator, segment.end - segment.first, hop.decoding)

    def _choose_all(self) -> tuple[int, ...]:
        """A candidate per segment: the fastest chain by measured times; else each by what its channel has shown."""
        left = [self._left(segment) for segment in range(self._task.segment_count)]
        if self._wanted is not None:
            left = [[self._wanted] if self._wanted in nodes else nodes for nodes in left]
        chain = self._chains.choose(self._task, [self._sound(nodes) for nodes in left]) if self._chains else None
        if chain is None:
            chain = tuple(min(nodes, key=self._peers.preference) for nodes in left)
        return tuple(self._task.assignment.candidates(segment).index(node) for segment, node in enumerate(chain))

    def _pipeline(self, attempt: int, chosen: tuple[int, ...], on_token: OnToken) -> Pipeline:
        self._hops = [self._hop(segment, attempt, candidate) for segment, candidate in enumerate(chosen)]
        return Pipeline(
            self._task,
            self._hops,
            self._traces,
            tokens=self._tokens,
            on_token=on_token,
            spent=self._spent,
            patience=self._patience,
        )

    def _hop(self, segment: int, attempt: int, candidate: int) -> Hop:
        node = self._task.assignment.candidates(segment)[candidate]
        try:
            channel = self._peers.channel(node)
        except OverlayError as error:
            raise HopFailed(segment, node, error) from error
        return Hop(self._task, segment, attempt, operator=node, channel=channel, scheduler=self._scheduler)

    def _left(self, segment: int) -> list[Address]:
        candidates = self._task.assignment.candidates(segment)
        left = [node for node in candidates if (segment, node) not in self._failed]
        if not left:
            raise NoCandidateLeft(f"Every candidate of segment {segment} has failed", ", ".join(candidates))
        return left

    def _sound(self, nodes: list[Address]) -> list[Address]:
        """Those that did not fail lately in any task; all if there is none: its last report may be a dead node's."""
        return [node for node in nodes if not self._peers.failed_lately(node)] or nodes

    def _all_candidates(self) -> set[Address]:
        return {
            node for segment in range(self._task.segment_count) for node in self._task.assignment.candidates(segment)
        }


def _nothing_new(_position: int, _token: int, _logprobs: Logprobs | None) -> None:
    """A replay hands out no tokens: they were handed out before."""
