"""Listen: the tokens of an answer go to who ordered it, or to the node that its request entered at, as they are chosen.

The request's salt is the key: who has it has the request. Nothing leaves before the fee is locked by this node's own
view of the chain.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from troth.node.direct.seams import Works
from troth.node.direct.served import served
from troth.node.direct.taking import Taking
from troth.node.errors import AlreadySigned, Busy, NotAssigned, OutOfOrder
from troth.node.service.work import Work
from troth.node.signing_record import SERVED, Subject
from troth.node.view import ChainView
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.wire_group import HEARD_LIMIT, Heard, Listen

log = logging.getLogger(__name__)

LISTEN_SECONDS = 10.0
"""How long a listener waits for the next token before it is told that there is none."""
MOST_LISTENERS = 4096
"""Of all entries; the channel allows each of a group's 50 members fewer than a part of them."""
LISTENERS_PER_TASK = 4

Sign = Callable[[Subject, object], Awaitable[bytes]]


class Listening:
    """Answers Listen.

    Args:
        works: the node's sessions.
        taking: which tasks may be waited for before their session begins.
        view: the node's own view of the chain.
        sign: gives this node's signature over a statement, recorded first (`Bench.sign`).
        patience: seconds; see `LISTEN_SECONDS`.
    """

    def __init__(
        self, works: Works, taking: Taking, view: ChainView, sign: Sign, patience: float = LISTEN_SECONDS
    ) -> None:
        self._works, self._taking, self._view, self._sign = works, taking, view, sign
        self._patience = patience
        self._listeners: Counter[bytes] = Counter()

    async def listen(self, message: Listen) -> tuple[Heard, bytes]:
        """What was chosen from `start` on, as soon as there is something; nothing after a while of silence.

        Raises:
            Busy: too many listen.
            NotAssigned: there is no such task here, or this is not its salt; it is not said which.
            OutOfOrder: the session is over, and its answer was never whole.
        """
        with self._place(message.task_id), suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                return await self._heard(message)
        return Heard(message.start, 0), b""

    @contextmanager
    def _place(self, task_id: bytes) -> Iterator[None]:
        if self._listeners.total() >= MOST_LISTENERS or self._listeners[task_id] >= LISTENERS_PER_TASK:
            raise Busy("too many listen already", self._listeners.total(), "Wait for the scheduler's own stream.")
        self._listeners[task_id] += 1
        try:
            yield
        finally:
            self._listeners[task_id] -= 1
            if not self._listeners[task_id]:
                del self._listeners[task_id]

    async def _heard(self, message: Listen) -> tuple[Heard, bytes]:
        work = await self._work(message)
        await self._until(lambda: self._works.is_paid(work))
        answer, start = work.answer, message.start
        await answer.reach(start)
        tokens = answer.tokens[start : start + HEARD_LIMIT]
        ended = answer.finished is not None and start + len(tokens) >= len(answer.tokens)
        if not tokens and not ended:
            raise OutOfOrder("the session is over", start, "Go on with the scheduler's own stream.")
        logprobs = _told(work, start, len(tokens))
        if not ended:
            return Heard(start, len(tokens), logprobs=logprobs), tokens_to_bytes(tokens)
        signature = await self._signature(work)
        return Heard(start, len(tokens), answer.finished, signature, logprobs), tokens_to_bytes(tokens)

    async def _signature(self, work: Work) -> bytes | None:
        """This node's word on the whole answer; None where it cannot give it.

        One answer of a task is signed and no other. Tokens that the scheduler says an earlier attempt has chosen could
        be anything: they are checked before a trace is signed, which is later.
        """
        if not work.answer.own:
            return None
        seat = work.seat
        try:
            return await self._sign(
                Subject(seat.task_id, 0, 0, SERVED), served(seat.task_id, seat.salt, work.answer.tokens)
            )
        except AlreadySigned as error:
            log.warning("another answer to this task was signed before: %s", error)
            return None

    async def _work(self, message: Listen) -> Work:
        """The session that answers; the scheduler may need a moment longer than the listener."""
        while True:
            begun, work = self._works.begun, self._works.answering(message.task_id)
            if work is not None and hmac.compare_digest(work.seat.salt, message.salt):
                self._taking.kept(message.task_id)
                return work
            if work is not None or not self._taking.expects(message.task_id, message.salt):
                raise NotAssigned("there is no such task here, or another salt", None, "Send the task's own salt.")
            await begun.wait()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            begun = time.monotonic()
            if not await self._view.until(condition, self._patience):
                # Our own time runs out with it; never in a loop without rest, whatever the view does.
                await asyncio.sleep(max(0.0, self._patience - (time.monotonic() - begun)))


def _told(work: Work, start: int, count: int) -> tuple[bytes, ...]:
    """One packed entry a token, or none where some token has none."""
    found = work.answer.logprobs[start : start + count]
    told = tuple(one for one in found if not isinstance(one, msgspec.UnsetType))
    return told if len(told) == count else ()
