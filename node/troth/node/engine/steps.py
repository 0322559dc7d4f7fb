"""Whose turn it is: what sessions ask for is put together into steps, one after the other, in one thread.

A step is one pass of the model over new positions of several sequences. All that want few positions take part (texts
that are written), and those that want many share what a step may hold besides, the one that waited longest first: a
long prompt goes in chunks, between which others take their steps, and the other way round it gets its chunk in every
step. How large a chunk is follows from how fast positions were computed before.

Sessions come back for their next token a moment after a step, one by one. So the thread waits for those that came back
quickly before, for a share of a step's own time: with all of them in one step, weights are read once for all.

A request that nobody waits for any more is dropped before its next chunk. The thread ends when there is nothing to do.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Condition
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from troth.node.engine.attention_cache import AttentionCache
from troth.node.engine.interface import Chosen, Computed, SessionKey, TokenDraw
from troth.node.engine.shaking import Shake
from troth.protocol.types import Segment

log = logging.getLogger(__name__)

FEW = 16
"""Positions of a request that takes part in every step. Chunks end at multiples of it, as an exact class' blocks do."""
SEQUENCES = 256
"""Requests in one step; those beyond come in the next one."""
FIRST_CHUNK, MOST_CHUNK = 256, 4_096
ALONE, SHARED = (1.0, 128), (0.15, 32)
"""How long a step with chunks should take, and the fewest positions that it holds of them: where no text is written,
and where one is, or was just now."""
WAITED_SHARE, WAITED_SECONDS = 0.25, 0.02
"""How long the thread waits for sessions that are to come back: a share of a step, and at most so long."""
SMOOTHING = 0.3
REMEMBERED_SECONDS = 60.0

Result = TypeVar("Result")


@dataclass(eq=False)
class SessionWork:
    """Positions `start`, … of a session that are to be computed, of which `done` are. `wide`: with float32 layers;
    `shake`: from rows whose last bits are changed so; `otherwise`: with the other attention. Both of the latter are no
    session's.

    The engine adds rows, and the seconds that the steps took; or it sets `failure`.
    """

    key: SessionKey
    segment: Segment
    start: int
    inputs: NDArray[Any]
    wide: bool = False
    shake: Shake | None = None
    otherwise: bool = False
    cache: AttentionCache | None = None
    rows: list[NDArray[Any]] = field(default_factory=list)
    seconds: float = 0.0
    failure: Exception | None = None
    done: int = 0
    served: int = 0
    answer: Future[Computed] = field(default_factory=Future)

    @property
    def left(self) -> int:
        """Positions that are not computed yet."""
        return len(self.inputs) - self.done

    @property
    def ended(self) -> bool:
        """Whether nothing more is to be computed."""
        return self.failure is not None or not self.left

    def settle(self) -> None:
        """Answer, unless nobody waits for it any more."""
        if self.answer.set_running_or_notify_cancel():
            if self.failure is not None:
                self.answer.set_exception(self.failure)
            else:
                rows = self.rows[0] if len(self.rows) == 1 else np.concatenate(self.rows)
                self.answer.set_result(Computed(rows, self.seconds))


@dataclass(eq=False)
class TokenChoice:
    """A token that is to be chosen from one post-norm row; the engine sets `chosen` or `failure`."""

    key: SessionKey
    row: NDArray[Any]
    draw: TokenDraw
    chosen: Chosen | None = None
    failure: Exception | None = None
    answer: Future[Chosen] = field(default_factory=Future)

    def settle(self) -> None:
        """Answer, unless nobody waits for it any more."""
        if self.answer.set_running_or_notify_cancel():
            if self.chosen is None:
                self.answer.set_exception(self.failure or RuntimeError("no token was chosen"))
            else:
                self.answer.set_result(self.chosen)


class StepShare(NamedTuple):
    """What a step computes of a work."""

    work: SessionWork
    positions: int


class Returns:
    """Which sessions will be back in a moment, by how long they stayed away before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left: dict[SessionKey, float] = {}
        self._away: dict[SessionKey, float] = {}

    def came(self, key: SessionKey) -> None:
        """A session asks for something."""
        left = self._left.pop(key, None)
        if left is not None:
            self._away[key] = self._clock() - left

    def went(self, key: SessionKey) -> None:
        """A session has got what it asked for."""
        self._left[key] = self._clock()

    def until(self, most: float) -> float:
        """The moment until which to wait if no absence longer than `most` is waited for; 0 if nobody is expected."""
        now, until = self._clock(), 0.0
        for key, left in list(self._left.items()):
            if left < now - REMEMBERED_SECONDS:
                del self._left[key]
                self._away.pop(key, None)
            elif now < left + most and self._away.get(key, 0.0) <= most:
                until = max(until, left + most)
        return until

    def lately(self, seconds: float) -> bool:
        """Whether any session got something within so many seconds."""
        since = self._clock() - seconds
        return any(left > since for left in self._left.values())


class EngineSteps:
    """The queue and its thread.

    Args:
        advance: computes a step; what goes wrong it says in the works.
        choose: chooses tokens; what goes wrong it says in the choices.
        kind: what works must have in common to go through the model in one pass.
    """

    def __init__(
        self,
        advance: Callable[[Sequence[StepShare]], None],
        choose: Callable[[Sequence[TokenChoice]], None],
        kind: Callable[[SessionWork], Hashable],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._advance, self._choose, self._kind, self._clock = advance, choose, kind, clock
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")
        self._changed = Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._works: list[SessionWork] = []
        self._choices: list[TokenChoice] = []
        self._runs = False
        self._returns = Returns(clock)
        self._number = 0
        self._step_seconds = 0.0
        self._rate = FIRST_CHUNK / ALONE[0]

    def run(self, job: Callable[[], Result]) -> Future[Result]:
        """Do something else in the thread, between two steps."""
        answer: Future[Result] = Future()

        def run() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(job())
            except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
                answer.set_exception(error)

        with self._changed:
            self._wake()
            self._jobs.append(run)
        return answer

    def compute(self, work: SessionWork) -> Future[Computed]:
        """Have positions computed; cancel the future to drop what is left of them."""
        with self._changed:
            self._wake()
            work.served = self._number
            self._works.append(work)
            self._returns.came(work.key)
        return work.answer

    def choose(self, choice: TokenChoice) -> Future[Chosen]:
        """Have a token chosen."""
        with self._changed:
            self._wake()
            self._choices.append(choice)
            self._returns.came(choice.key)
        return choice.answer

    @property
    def begun(self) -> set[Segment]:
        """Segments of works that are under way."""
        with self._changed:
            return {work.segment for work in self._works if work.done and not work.ended}

    def close(self) -> None:
        """Stop after what is at hand; what waits is cancelled."""
        with self._changed:
            self._jobs.clear()
            for work in self._works:
                work.answer.cancel()
            for choice in self._choices:
                choice.answer.cancel()
            self._changed.notify_all()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _wake(self) -> None:
        if not self._runs:
            # Raises where the engine was closed.
            self._executor.submit(self._rounds)
            self._runs = True
        self._changed.notify_all()

    def _rounds(self) -> None:
        try:
            with torch.inference_mode():
                while self._round():
                    pass
        except BaseException as error:
            log.exception("a step broke in a way that nobody expected; all that waited for it is told")
            self._break_off(error)
            raise

    def _break_off(self, error: BaseException) -> None:
        """Tell whoever waits, and begin anew with the next request: nobody may wait for ever."""
        with self._changed:
            waiting: list[Future[Any]] = [work.answer for work in self._works]
            waiting += [choice.answer for choice in self._choices]
            self._works, self._choices, self._runs = [], [], False
            if self._jobs:
                self._wake()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(error)

    def _round(self) -> bool:
        """One other job if there is one, then a step, or the choices that the next step waits for."""
        with self._changed:
            self._drop_cancelled()
            if not (self._jobs or self._works or self._choices):
                self._runs = False
                return False
            job = self._jobs.popleft() if self._jobs else None
        if job is not None:
            job()
        with self._changed:
            if job is None:
                self._await_returns()
            self._drop_cancelled()
            choices, self._choices = self._choices, []
            shares = [] if choices else self._shares()
        if choices:
            self._choose(choices)
            self._answer(choices)
        if shares:
            self._step(shares)
        return True

    def _drop_cancelled(self) -> None:
        self._works = [work for work in self._works if not work.answer.cancelled()]
        self._choices = [choice for choice in self._choices if not choice.answer.cancelled()]

    def _await_returns(self) -> None:
        most = min(WAITED_SHARE * self._step_seconds, WAITED_SECONDS)
        while (left := self._returns.until(most) - self._clock()) > 0 and not self._jobs:
            self._changed.wait(left)

    def _shares(self) -> list[StepShare]:
        firsts: dict[SessionKey, SessionWork] = {}
        for work in self._works:
            firsts.setdefault(work.key, work)
        waiting = sorted(firsts.values(), key=lambda work: work.served)
        kinds = [self._kind(work) for work in waiting]
        kin = [work for work, kind in zip(waiting, kinds, strict=True) if kind == kinds[0]]
        shares = [StepShare(work, work.left) for work in kin if work.left <= FEW][:SEQUENCES]
        shared = len(shares) > 0 or self._returns.lately(ALONE[0])
        room = self._chunk(*(SHARED if shared else ALONE))
        for work in kin:
            if work.left > FEW and room >= FEW:
                count = min(work.left, room)
                if count < work.left:
                    count -= (work.start + work.done + count) % FEW
                room -= count
                shares.append(StepShare(work, count))
        return shares

    def _chunk(self, seconds: float, least: int) -> int:
        return max(least, min(MOST_CHUNK, int(self._rate * seconds)))

    def _step(self, shares: Sequence[StepShare]) -> None:
        began = self._clock()
        self._advance(shares)
        self._step_seconds = self._clock() - began
        chunks = sum(count for _, count in shares if count > FEW)
        if chunks >= SHARED[1]:
            self._rate += SMOOTHING * (chunks / self._step_seconds - self._rate)
        with self._changed:
            self._number += 1
            for work, _ in shares:
                work.served = self._number
        self._answer([work for work, _ in shares if work.ended])

    def _answer(self, ended: Sequence[SessionWork] | Sequence[TokenChoice]) -> None:
        with self._changed:
            self._works = [work for work in self._works if not work.ended]
            for one in ended:
                if isinstance(one, TokenChoice) or len(one.inputs) <= FEW:
                    self._returns.went(one.key)
        for one in ended:
            one.settle()
