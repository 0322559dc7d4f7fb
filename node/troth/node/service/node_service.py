"""Routes the channel's messages to their handlers and keeps the sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection

from troth.node.errors import BadInput, Busy, NotAssigned, OutOfOrder
from troth.node.metrics import Metrics
from troth.node.service.bench import Bench
from troth.node.service.committing import commit
from troth.node.service.comparing import compare
from troth.node.service.credit import Credit
from troth.node.service.decoding import decode
from troth.node.service.forwarding import forward
from troth.node.service.opening import open_trace
from troth.node.service.review_seat import take_review_seat
from troth.node.service.seat import take_seat
from troth.node.service.work import Work
from troth.overlay.logs import task_bound
from troth.protocol.announcement import announcement_from_wire
from troth.protocol.tokens import Finish
from troth.protocol.types import Address, Hash32, Segment
from troth.protocol.wire import Commit, Compare, Decode, Forward, NodeReply, NodeRequest, Open, Release, Released

QUIET_SECONDS = 5.0
"""A session that is asked nothing for so long no longer keeps a node from being stopped: between two steps of a task
lie a block or two, and what is missed then can be posted after a restart."""
LOOK_SECONDS = 0.1

Name = tuple[bytes, int, int]
Answer = tuple[NodeReply, bytes]


class NodeService:
    """The handler that the channel server calls; see `wire` for what each message means."""

    def __init__(self, bench: Bench, metrics: Metrics) -> None:
        self._bench = bench
        self._metrics = metrics
        self._works: dict[Name, Work] = {}
        self._credit = Credit(bench.view)
        self._beginning: dict[Name, asyncio.Lock] = {}
        self._leaving = False
        self.answered: Callable[[float], None] = lambda _seconds: None
        """Told the seconds from a task's first message to its last token, of every answer given here."""
        self.took: Callable[[], None] = lambda: None
        """Told of each task that begins here for an answer with the whole model."""
        self.begun = asyncio.Event()
        """Set when the next session begins; another one takes its place then."""

    @property
    def sessions(self) -> int:
        """Sessions held now."""
        return len(self._works)

    @property
    def leaving(self) -> bool:
        """Whether no session is begun any more."""
        return self._leaving

    def answering(self, task_id: bytes) -> Work | None:
        """The newest session in which this node answers the task with the whole model; None if there is none."""
        works = (work for name, work in self._works.items() if name[0] == task_id)
        whole = (work for work in works if work.seat.infers and work.seat.is_first and work.seat.is_last)
        return max(whole, key=lambda work: work.attempt, default=None)

    def is_paid(self, work: Work) -> bool:
        """Whether the fee of a session is locked, by this node's own view of the chain."""
        return self._credit.is_open(work.seat)

    async def leave(self) -> None:
        """Begin no session any more, and wait until those that are there have ended or are asked nothing any more."""
        self._leaving = True
        while True:
            now = self._bench.clock()
            if all(now - work.touched >= QUIET_SECONDS for work in self._works.values()):
                return
            await asyncio.sleep(LOOK_SECONDS)

    @property
    def segments(self) -> frozenset[Segment]:
        """The layers that sessions are about."""
        return frozenset(work.seat.layers for work in self._works.values())

    async def end(self, segments: Collection[Segment]) -> None:
        """Drop the sessions about these layers."""
        for name in [name for name, work in self._works.items() if work.seat.layers in segments]:
            await self._drop(name)

    async def handle(self, sender: Address, header: NodeRequest, payload: memoryview) -> Answer:
        """Answer one message; raises a Refusal or a ProtocolError, which the channel turns into a Failure."""
        started = time.perf_counter()
        outcome = "refused"
        with task_bound(header.task_id):
            try:
                answer = await self._route(sender, header, payload)
                outcome = "answered"
                return answer
            finally:
                self._metrics.observe(type(header).__name__, outcome, time.perf_counter() - started)
                self._metrics.sessions.set(len(self._works))
                self._metrics.cache_bytes.set(self._bench.engine.cache_bytes)

    async def _route(self, sender: Address, header: NodeRequest, payload: memoryview) -> Answer:
        if isinstance(header, Release):
            return await self._release(sender, header)
        if isinstance(header, Open):
            return await open_trace(self._bench, sender, header)
        if isinstance(header, Forward):
            work, rest = await self._work_for(sender, header, payload)
            async with work.lock:
                answer = await forward(self._bench, work, header, rest)
            self._metrics.positions.labels(role=_role(work)).inc(header.count)
            self._note_answered(work, answer[0].finished)
            return answer
        work = self._find(sender, header)
        if isinstance(header, Decode):
            reply, data = await decode(self._bench, work, header)
            self._metrics.positions.labels(role="inferencer").inc(reply.count)
            self._note_answered(work, reply.finished)
            return reply, data
        async with work.lock:
            if isinstance(header, Commit):
                return await commit(self._bench, work, header, payload)
            return await compare(self._bench, work, header, payload)

    def _note_answered(self, work: Work, finished: Finish | None) -> None:
        if finished is not None and not work.counted:
            work.counted = True
            self.answered(self._bench.clock() - work.began)

    async def _work_for(self, sender: Address, header: Forward, payload: memoryview) -> tuple[Work, memoryview]:
        """The session of a Forward, begun if the message announces it; and the payload after the request."""
        if header.request_size > len(payload):
            raise BadInput("the payload is shorter than its request", len(payload), "Send the whole request.")
        request, rest = payload[: header.request_size], payload[header.request_size :]
        name = (header.task_id, header.segment, header.attempt)
        if name in self._works:
            return self._find(sender, header), rest
        if header.announcement is None:
            raise OutOfOrder("this task was not announced here", header.segment, "Send the announcement first.")
        lock = self._beginning.setdefault(name, asyncio.Lock())
        try:
            async with lock:
                if name not in self._works:
                    begun = await self._begin(sender, header, request)
                    again = self.answering(header.task_id) is not None
                    self._works[name] = begun
                    if not again and self.answering(header.task_id) is begun:
                        self.took()
                    self.begun.set()
                    self.begun = asyncio.Event()
        finally:
            self._beginning.pop(name, None)
        return self._find(sender, header), rest

    async def _begin(self, sender: Address, header: Forward, request: memoryview) -> Work:
        assert header.announcement is not None
        if self._leaving:
            raise Busy("this node is being stopped", None, "Choose another node.")
        await self._make_room()
        announcement = announcement_from_wire(header.announcement, request)
        bench, now = self._bench, self._bench.clock()
        if header.review is None:
            seat = await take_seat(
                announcement, header.segment, sender=sender, post=bench.post, view=bench.view, now=now
            )
        else:
            review = Hash32(header.review)
            seat = await take_review_seat(
                announcement, header.segment, review, sender=sender, post=bench.post, view=bench.view
            )
        if seat.task_id != header.task_id:
            raise NotAssigned("the announcement is for another task", seat.task_id, "Send the order's own task id.")
        # Drawn for a slice that it has changed to a moment ago: the chain is faster than a disk.
        if not bench.engine.holds(seat.layers):
            raise Busy(
                "these layers are not loaded here yet", seat.layers, "Retry in a moment, or choose another node."
            )
        await self._credit.require(seat, self._works.values(), now)
        return Work.begin(seat, header.attempt, now)

    async def _make_room(self) -> None:
        now, limits = self._bench.clock(), self._bench.limits
        idle = [name for name, work in self._works.items() if now - work.touched > limits.idle_seconds]
        for name in idle:
            await self._drop(name)
        if len(self._works) >= limits.works:
            raise Busy("this node has no session left", len(self._works), "Retry later or choose another node.")

    async def _drop(self, name: Name) -> None:
        work = self._works.pop(name, None)
        if work is None:
            return
        await work.end()
        async with work.lock:
            # Not before the message at hand is answered, which would begin a session that nobody ends.
            self._credit.note_end(work, self._bench.clock())
            await self._bench.engine.forget(work.key)

    def _find(self, sender: Address, header: Forward | Decode | Commit | Compare) -> Work:
        work = self._works.get((header.task_id, header.segment, header.attempt))
        if work is None:
            raise OutOfOrder("there is no such session here", header.segment, "Announce it with Forward.")
        if sender != work.seat.scheduler:
            raise NotAssigned("this is another scheduler's task", sender, "Send your own tasks.")
        work.touched = self._bench.clock()
        self._credit.require_opened_in_time(work, work.touched)
        return work

    async def _release(self, sender: Address, header: Release) -> Answer:
        own = [name for name, work in self._works.items() if name[0] == header.task_id]
        if any(self._works[name].seat.scheduler != sender for name in own):
            raise NotAssigned("this is another scheduler's task", sender, "Release your own tasks.")
        ended = [self._works.pop(name) for name in own]
        for work in ended[:1]:
            self._credit.note_end(work, self._bench.clock())
        for work in ended:
            await work.end()
        if own:
            await self._bench.engine.release(header.task_id)
        return Released(), b""


def _role(work: Work) -> str:
    return "inferencer" if work.seat.infers else "verifier"
