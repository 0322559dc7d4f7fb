"""Reports to every scheduler that may serve this node's class, for as long as the node runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from troth.node.pool.contacts import Contacts, OperatorContact
from troth.node.pool.probing import ProbedLinks
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address
from troth.protocol.wire_reports import LINKS_LIMIT, HostingPart, LinkPart, Report, Reported
from troth.transport.channel import Channel, ChannelPatience
from troth.transport.errors import OverlayError, RemoteFailure
from troth.transport.identity import Operator

log = logging.getLogger(__name__)

REPORT_SECONDS = 1.5
AWAY_SECONDS = 30.0
"""Until a scheduler that does not serve this class is told again."""
MOST_SCHEDULERS = 64
LEAVING_SECONDS = 2.0
PATIENCE = ChannelPatience(connect=5.0, request=5.0, frame=64 * 1024, longest_pause=30.0)

Draft = Callable[[Address], Report]
OnOrder = Callable[[Address, HostingPart], None]


@dataclass(slots=True)
class _Line:
    """What is remembered of one scheduler. `links` wait for the next report."""

    endpoint: tuple[str, bytes]
    channel: Channel
    task: asyncio.Task[None] | None = None
    round_trip: float = 0.0
    links: tuple[LinkPart, ...] = ()
    probing: asyncio.Task[list[LinkPart]] | None = None


class Reporting:
    """Keeps a channel to each bonded scheduler and reports on it.

    Args:
        draft: the report to a scheduler as it is now, with sequence 0 and without links.
        contacts: who is bonded.
        on_order: gets what a scheduler would have this node host.
    """

    def __init__(self, operator: Operator, draft: Draft, contacts: Contacts, on_order: OnOrder) -> None:
        self._operator = operator
        self._draft = draft
        self._contacts = contacts
        self._on_order = on_order
        self._lines: dict[Address, _Line] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._sequence = 0
        self._ways = ProbedLinks()

    async def run(self) -> None:
        """Report until cancelled."""
        try:
            while True:
                self._follow_schedulers()
                await asyncio.sleep(REPORT_SECONDS)
        finally:
            tasks = [task for line in self._lines.values() for task in _tasks_of(line)]
            for task in (*tasks, *self._closing):
                task.cancel()
            await asyncio.gather(*tasks, *self._closing, return_exceptions=True)

    async def leave(self) -> None:
        """Tell every scheduler that this node goes, and close the channels."""
        for farewell in (self._say_goodbye, _close):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVING_SECONDS):
                    await asyncio.gather(*[farewell(*line) for line in self._lines.items()])
        self._lines.clear()

    def _follow_schedulers(self) -> None:
        """Open a line to who has registered, and one anew where an endpoint moved or a line broke; end those of who is
        not bonded any more, or listens elsewhere now."""
        bonded = {one.operator: one for one in self._contacts.schedulers()[:MOST_SCHEDULERS]}
        for name, line in list(self._lines.items()):
            if name not in bonded or _endpoint_of(bonded[name]) != line.endpoint:
                del self._lines[name]
                closing = asyncio.create_task(_end(line))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        for name, scheduler in bonded.items():
            if name not in self._lines:
                endpoint = _endpoint_of(scheduler)
                try:
                    channel = Channel(*endpoint, self._operator, name, patience=PATIENCE)
                except OverlayError as error:
                    log.debug("%s cannot be reported to: %s", name, error)
                    continue
                self._lines[name] = _Line(endpoint, channel)
        for name, line in self._lines.items():
            if line.task is None or line.task.done():
                line.task = asyncio.create_task(self._report_to(name, line))

    async def _report_to(self, scheduler: Address, line: _Line) -> None:
        while True:
            pause = REPORT_SECONDS
            try:
                self._hear(scheduler, line, await self._send(scheduler, line))
            except RemoteFailure as refusal:
                log.debug("%s refused a report: %s", scheduler, refusal)
                pause = AWAY_SECONDS if refusal.remote_code == "class_not_served" else REPORT_SECONDS
            except (OverlayError, ProtocolError) as error:
                log.debug("%s was not reached: %s", scheduler, error)
            await asyncio.sleep(pause)

    async def _send(self, scheduler: Address, line: _Line, **changes: object) -> Reported:
        self._sequence = max(self._sequence + 1, time.time_ns() // 1_000_000)
        links, line.links = line.links, ()
        told = {"sequence": self._sequence, "round_trip": int(line.round_trip * 1e6), "links": links, **changes}
        before = time.perf_counter()
        frame = await line.channel.request(msgspec.structs.replace(self._draft(scheduler), **told))
        line.round_trip = min(time.perf_counter() - before, PATIENCE.request)
        if not isinstance(frame.header, Reported):
            raise ProtocolError("The scheduler answered something else", type(frame.header).__name__, "Report again.")
        return frame.header

    def _hear(self, scheduler: Address, line: _Line, answer: Reported) -> None:
        if answer.hosting is not None:
            self._on_order(scheduler, answer.hosting)
        if line.probing is not None and line.probing.done() and not line.probing.cancelled():
            probed, line.probing = line.probing, None
            line.links = tuple(probed.result()[:LINKS_LIMIT])
        if answer.probes and line.probing is None:
            others = set(answer.probes) - {self._operator.address}
            line.probing = asyncio.create_task(self._ways.to(self._contacts.nodes(others)))

    async def _say_goodbye(self, scheduler: Address, line: _Line) -> None:
        if line.channel.connected:
            try:
                await self._send(scheduler, line, leaving=True)
            except (OverlayError, ProtocolError) as error:
                log.debug("a scheduler was not told: %s", error)


async def _close(_: Address, line: _Line) -> None:
    await line.channel.close()


async def _end(line: _Line) -> None:
    """Tell and ask nothing more on a line, and close it."""
    tasks = _tasks_of(line)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await line.channel.close()


def _tasks_of(line: _Line) -> list[asyncio.Task[Any]]:
    return [task for task in (line.task, line.probing) if task is not None]


def _endpoint_of(scheduler: OperatorContact) -> tuple[str, bytes]:
    return scheduler.endpoint, scheduler.tls_key_hash
