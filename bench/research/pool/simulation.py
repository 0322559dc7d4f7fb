"""The pool as discrete events: arrivals, batches at machines, messages between them; continuous batching per stage.

A machine that is free takes what waits, oldest first, up to a batch's limits. A request's prompt passes its chain once
and yields the first token; each further token passes it again. Cache for the whole request is reserved when it starts.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from benchmarks.trace import Request

from research.pool.serving import Measured, Route, Scheduler
from research.pool.world import Load, World, union

BATCH_REQUESTS, BATCH_TOKENS = 256, 2048
"""Most requests and most fresh tokens in a batch (vLLM's defaults)."""
REPORT_SECONDS = 2.0
"""Machines report what they measured so often, as in the paper."""
TOKEN_BYTES = 4
Progress = Callable[[int], None]
"""Told after each request how many are left."""


@dataclass(slots=True)
class Running:
    """A request on its chain: `stage` it is at or on its way to, tokens cached before this pass, and made so far."""

    request: Request
    route: Route
    stage: int = 0
    context: int = 0
    made: int = 0
    lost: bool = False

    @property
    def fresh(self) -> int:
        """Tokens that this pass brings: one, or on a new chain all that the request has."""
        return 1 if self.context else self.request.prompt + self.made


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that got its whole answer: times in seconds since the trace began."""

    request: Request
    first_token: float
    last_token: float


@dataclass(slots=True)
class Outcome:
    """All that ended, all that no chain could ever serve, how much of its cache a machine used at most."""

    ended: list[Ended] = field(default_factory=list)
    dropped: list[Request] = field(default_factory=list)
    fullest: float = 0.0
    batches: int = 0
    moved: int = 0
    """Times that a request lost its chain and went on with another, its tokens so far computed again."""


@dataclass(slots=True)
class _Machine:
    waiting: deque[Running] = field(default_factory=deque)
    busy: bool = False
    seconds: float = 0.0
    layers: int = 0
    running: int = 0
    held: int = 0


class Simulation:
    """One trace through one scheduler in one world."""

    def __init__(
        self, world: World, scheduler: Scheduler, batch_requests: int = BATCH_REQUESTS, progress: Progress | None = None
    ) -> None:
        self._world, self._scheduler, self._most = world, scheduler, batch_requests
        self._machines = [_Machine() for _ in world.sites]
        self._queue: deque[Request] = deque()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self._first_token: dict[int, float] = {}
        self._made: dict[int, int] = {}
        self._active: dict[int, Running] = {}
        self._left = 0
        self._progress = progress
        self.outcome = Outcome()

    def run(self, requests: Sequence[Request], leaving: Sequence[tuple[float, int]] = ()) -> Outcome:
        """Play the whole trace until each request has ended or was dropped. `leaving`: machines that go, and when."""
        for when, place in leaving:
            self._at(when, lambda now, place=place: self._leave(place, now))
        self._left = len(requests)
        for request in requests:
            self._at(request.arrival, lambda now, request=request: self._arrive(request, now))
        self._at(REPORT_SECONDS, self._report)
        while self._left:
            now, _, act = heapq.heappop(self._events)
            act(now)
        return self.outcome

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))

    def _arrive(self, request: Request, now: float) -> None:
        self._queue.append(request)
        self._admit(now)

    def _admit(self, now: float) -> None:
        """First come, first served: the oldest that waits holds up the others, so none starves."""
        while self._queue:
            route = self._scheduler.choose(self._queue[0])
            if route is None:
                if self._active or self._scheduler.loading(now):
                    return
                self.outcome.dropped.append(self._queue.popleft())
                self._finish_one()
                continue
            request = self._queue.popleft()
            running = self._active[request.number] = Running(request, route, made=self._made.pop(request.number, 0))
            self._hold(request, route, 1)
            self._deliver([running], now)

    def _hold(self, request: Request, route: Route, sign: int) -> None:
        for place in {hop.place for hop in route}:
            machine = self._machines[place]
            machine.held += sign * request.tokens
            machine.running += sign
            if sign > 0:
                room = self._scheduler.cache_tokens[place]
                if machine.held > room:
                    raise AssertionError(f"{self._scheduler.name} gave out {machine.held} of {room} tokens at {place}.")
                self.outcome.fullest = max(self.outcome.fullest, machine.held / max(1, room))

    def _leave(self, place: int, now: float) -> None:
        """What ran there, or on machines that must load other layers, waits again, before all others."""
        stopped = self._scheduler.left(place, now) | {place}
        lost = [
            running for running in self._active.values() if any(hop.place in stopped for hop in running.route)
        ]  # fmt: skip
        for running in lost:
            running.lost = True
            number = running.request.number
            del self._active[number]
            self._made[number] = running.made
            self._hold(running.request, running.route, -1)
            self._scheduler.release(running.request)
        self.outcome.moved += len(lost)
        self._queue.extendleft(sorted((running.request for running in lost), key=lambda one: -one.number))
        self._admit(now)

    def _deliver(self, group: list[Running], now: float) -> None:
        arrived = [running for running in group if not running.lost]
        if not arrived:
            return
        place = arrived[0].route[arrived[0].stage].place
        machine = self._machines[place]
        machine.waiting.extend(arrived)
        if not machine.busy:
            self._start(place, now)

    def _start(self, place: int, now: float) -> None:
        machine = self._machines[place]
        batch, tokens = list[Running](), 0
        while machine.waiting and len(batch) < self._most:
            if machine.waiting[0].lost:
                machine.waiting.popleft()
                continue
            fresh = machine.waiting[0].fresh
            if batch and tokens + fresh > BATCH_TOKENS:
                break
            tokens += fresh
            batch.append(machine.waiting.popleft())
        if not batch:
            return
        load = _load(batch, self._world.model.shape.layers)
        seconds = self._world.batch_seconds(place, load)
        machine.busy = True
        machine.seconds += seconds
        machine.layers += union(load.spans)
        self.outcome.batches += 1
        self._at(now + seconds, lambda then: self._done(place, batch, then))

    def _done(self, place: int, batch: list[Running], now: float) -> None:
        self._machines[place].busy = False
        messages: dict[int, list[Running]] = {}
        for running in batch:
            if not running.lost:
                self._advance(running, now, messages)
        for target, group in messages.items():
            self._send(place, target, group, now)
        if not self._machines[place].busy:
            self._start(place, now)

    def _advance(self, running: Running, now: float, messages: dict[int, list[Running]]) -> None:
        running.stage += 1
        if running.stage == len(running.route):
            running.context += running.fresh
            running.made += 1
            running.stage = 0
            number = running.request.number
            self._first_token.setdefault(number, now)
            if running.made >= running.request.output:
                self._end(running, now)
                return
        messages.setdefault(running.route[running.stage].place, []).append(running)

    def _send(self, place: int, target: int, group: list[Running], now: float) -> None:
        """One message for all that go the same way; after the last stage only tokens go back to the first."""
        latency, rate = self._world.link(place, target)
        width = 2 * self._world.model.width
        size = sum(TOKEN_BYTES if running.stage == 0 else running.fresh * width for running in group)
        self._at(now + latency + size / rate, lambda then: self._deliver(group, then))

    def _end(self, running: Running, now: float) -> None:
        request = running.request
        self._scheduler.release(request)
        self._hold(request, running.route, -1)
        del self._active[request.number]
        self.outcome.ended.append(Ended(request, self._first_token.pop(request.number), now))
        self._finish_one()
        self._admit(now)

    def _finish_one(self) -> None:
        self._left -= 1
        if self._progress is not None:
            self._progress(self._left)

    def _report(self, now: float) -> None:
        measured = []
        for machine in self._machines:
            measured.append(Measured(machine.seconds / machine.layers if machine.layers else None, machine.running))
            machine.seconds, machine.layers = 0.0, 0
        self._scheduler.report(measured, now)
        self._admit(now)
        self._at(now + REPORT_SECONDS, self._report)


def _load(batch: Sequence[Running], layers: int) -> Load:
    spans, closing, fresh, cached = set(), 0, 0, 0
    for running in batch:
        hop = running.route[running.stage]
        width, tokens = hop.end - hop.first, running.fresh
        spans.add((hop.first, hop.end))
        closing += hop.end == layers
        fresh += width * tokens
        cached += width * (running.context + tokens)
    return Load(spans, closing, fresh, cached)
