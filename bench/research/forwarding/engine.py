"""A node as events see it: continuous batching, chunked prefill, and a prefix cache of whole blocks with LRU."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from research.forwarding.clock import Clock
from research.forwarding.service import Machine
from research.forwarding.workloads import Request
from troth.routing.prefixes.local_blocks import BlocksRemoved, BlocksStored, KvEvent
from troth.routing.prefixes.naming import BLOCK, TOKEN
from troth.routing.prefixes.update import LatencyAverage, NodeLoad

WIDTH = BLOCK * TOKEN


@dataclass(slots=True)
class Job:
    """A request on a node; times in simulated seconds since the run's start."""

    request: Request
    asked: float
    arrived: float
    node: int
    hit: int = 0
    expected: int = 0
    """Prompt tokens to compute, as its node reckons when it arrives."""
    prefill_left: int = -1
    decode_left: int = 0
    first: float = math.nan
    done: float = math.nan


class Cache:
    """Blocks by hash, the least used evicted first; says what it stores and removes."""

    def __init__(self, blocks: int, tell: Callable[[KvEvent], None]) -> None:
        self._room, self._tell = blocks, tell
        self._held: OrderedDict[int, None] = OrderedDict()

    def match(self, request: Request) -> int:
        """Prompt tokens held; the last one is always computed, as engines do."""
        blocks = request.blocks[: (request.prompt_tokens - 1) // BLOCK]
        held = next((place for place, block in enumerate(blocks) if block not in self._held), len(blocks))
        for block in reversed(blocks[:held]):
            self._held.move_to_end(block)
        return held * BLOCK

    def store(self, request: Request, start: int, end: int) -> None:
        """Blocks `start` to `end` of a request are computed."""
        blocks, fresh = request.blocks, []
        content = request.tokens if end * WIDTH <= len(request.tokens) else request.tokens + request.output
        for place in range(start, end):
            if blocks[place] in self._held:
                self._say(request, content, fresh)
                fresh = []
            else:
                self._held[blocks[place]] = None
                fresh.append(place)
        self._say(request, content, fresh)
        for place in range(end - 1, -1, -1):
            if blocks[place] in self._held:
                self._held.move_to_end(blocks[place])
        gone = []
        while len(self._held) > self._room:
            gone.append(self._held.popitem(last=False)[0])
        if gone:
            self._tell(BlocksRemoved(tuple(gone)))

    def _say(self, request: Request, content: bytes, places: Sequence[int]) -> None:
        if places:
            first, last = places[0], places[-1] + 1
            parent = request.blocks[first - 1] if first else None
            tokens = content[first * WIDTH : last * WIDTH]
            self._tell(BlocksStored(tuple(request.blocks[first:last]), parent, tokens))


class Engine:
    """One node. `finished` is called with each job that is done, `started` with each whose first token is out."""

    def __init__(
        self, machine: Machine, clock: Clock, tell: Callable[[KvEvent], None], finished: Callable[[Job], None]
    ) -> None:
        self._machine, self._clock, self._finished = machine, clock, finished
        self.cache = Cache(machine.blocks, tell)
        self._waiting: deque[Job] = deque()
        self._filling: deque[Job] = deque()
        self._decoding: list[Job] = []
        self._leap: tuple[float, float, int] | None = None  # (start, seconds of a step, steps) while only decoding
        self._turn = 0
        self._stepping = False
        self.latency = LatencyAverage()
        self.pace = LatencyAverage()
        self.busy = 0.0
        self.taken = 0

    @property
    def active(self) -> int:
        return len(self._waiting) + len(self._filling) + len(self._decoding)

    @property
    def pending(self) -> int:
        filling = sum(job.expected if job.prefill_left < 0 else job.prefill_left for job in self._filling)
        return filling + sum(job.expected for job in self._waiting)

    @property
    def load(self) -> NodeLoad:
        running = len(self._filling) + len(self._decoding)
        return NodeLoad(
            self.latency.seconds,
            len(self._waiting),
            running,
            self._machine.running,
            self.pace.seconds,
            self.pending,
            self.taken,
        )

    def submit(self, job: Job) -> None:
        """A request arrives now."""
        self.taken += 1
        job.expected = job.request.prompt_tokens - self.cache.match(job.request)
        self._waiting.append(job)
        if not self._stepping:
            self._step()
        elif self._leap is not None:
            start, seconds, steps = self._leap
            done = min(steps, max(1, math.ceil((self._clock.now - start) / seconds - 1e-9)))
            if done < steps:
                self._leap_to(start, seconds, done)

    def _step(self) -> None:
        while self._waiting and len(self._filling) + len(self._decoding) < self._machine.running:
            job = self._waiting.popleft()
            self._filling.append(job)
        self._leap = None
        self._stepping = True
        if self._filling:
            self._fill()
        elif self._decoding:
            steps = min(job.decode_left for job in self._decoding)
            self._leap_to(self._clock.now, self._step_seconds(0), steps)
        else:
            self._stepping = False

    def _fill(self) -> None:
        left, parts = self._machine.step_tokens, []
        for job in self._filling:
            if job.prefill_left < 0:
                job.hit = self.cache.match(job.request)
                job.prefill_left = job.request.prompt_tokens - job.hit
            part = min(left, job.prefill_left)
            if part == 0:
                break
            parts.append((job, part))
            left -= part
        seconds = self._step_seconds(self._machine.step_tokens - left)
        self.busy += seconds
        self.pace.add(seconds / (self._machine.step_tokens - left))
        self._turn += 1
        self._clock.at(self._clock.now + seconds, lambda: self._filled(parts))

    def _filled(self, parts: list[tuple[Job, int]]) -> None:
        self._decoded(1)
        for job, part in parts:
            job.prefill_left -= part
            if job.prefill_left == 0:
                self._filling.remove(job)
                request = job.request
                self.cache.store(request, job.hit // BLOCK, request.prompt_tokens // BLOCK)
                job.first = self._clock.now
                job.decode_left = request.output_tokens - 1
                self._decoding.append(job)
        self._finish()
        self._step()

    def _leap_to(self, start: float, seconds: float, steps: int) -> None:
        self._leap = (start, seconds, steps)
        self._turn += 1
        turn = self._turn
        self._clock.at(start + seconds * steps, lambda: self._leapt(turn, seconds, steps))

    def _leapt(self, turn: int, seconds: float, steps: int) -> None:
        if turn != self._turn:
            return
        self.busy += seconds * steps
        self._decoded(steps)
        self._finish()
        self._step()

    def _decoded(self, steps: int) -> None:
        for job in self._decoding:
            job.decode_left -= steps

    def _finish(self) -> None:
        done = [job for job in self._decoding if job.decode_left <= 0]
        if done:
            self._decoding = [job for job in self._decoding if job.decode_left > 0]
        for job in done:
            job.done = self._clock.now
            self.latency.add(job.done - job.arrived)
            self.cache.store(job.request, job.request.prompt_tokens // BLOCK, len(job.request.blocks))
            self._finished(job)

    def _step_seconds(self, prompt_tokens: int) -> float:
        machine = self._machine
        read = sum(job.request.prompt_tokens for job in self._decoding)
        return (
            machine.base + machine.prefill * prompt_tokens + machine.each * len(self._decoding) + machine.context * read
        )
