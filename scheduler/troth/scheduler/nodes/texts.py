"""All texts that one node writes alone for this scheduler: one question at a time, on one connection, for all of them.

A text is asked for again as soon as its last part was taken, so that nothing piles up here, and the node runs ahead of
nobody by more than it lends. A text that begins takes its place in a new question, which ends the wait of the one
before. Each text has its own patience, and its own refusal: one that is silent or breaks off holds up no other. A node
that answers and has nothing of a text is slow, and has longer than a silent one; an overloaded one is asked again.
Where the connection breaks and stands again at once, texts go on where they were; a node that was started anew has lost
them, and says so of each.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from troth.protocol.errors import ProtocolError, WireError
from troth.protocol.types import Hash32
from troth.protocol.wire import Decoded
from troth.protocol.wire_decoding import DecodedPart, HaltedPart, WantedText, WrittenPart, decode_parts, encode_wanted
from troth.protocol.wire_fields import DECODE_LIMIT, SEQUENCES_LIMIT
from troth.protocol.wire_market import Proceed
from troth.transport.channel import Channel
from troth.transport.errors import (
    ChannelTimeout,
    ChannelUnavailable,
    OverlayError,
    Overloaded,
    RemoteFailure,
    remote_failure,
)

log = logging.getLogger(__name__)

QUESTION_SECONDS = 15.0
"""For an answer that may say nothing: nodes hold a question back for a third of it."""
SETTLE_SECONDS = 0.002
"""How long a question waits for other texts that have just been told something, too."""
PACE_SECONDS = 0.01
"""Between two questions of which the second one takes the first one's place."""
DROPPED_TEXTS = 4_096
"""Of which it is remembered how much of them came too late."""


@dataclass(slots=True)
class _Waiting:
    wanted: WantedText
    answer: asyncio.Future[WrittenPart]


class NodeTexts:
    """Use ``next`` for each part of a text; the questions are asked as long as anybody waits."""

    def __init__(self, channel: Callable[[], Channel]) -> None:
        self._channel = channel
        self._waiting: dict[Hash32, _Waiting] = {}
        self._begun = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None
        self._questions: dict[asyncio.Task[int], frozenset[Hash32]] = {}
        self._dropped: OrderedDict[Hash32, int] = OrderedDict()
        """Up to which position the node gave a text in answers that came too late to be taken."""
        self._several = False
        self._broken = False
        self._heard = float("-inf")
        """When the node last answered a question, if only that it has nothing."""

    async def next(self, wanted: WantedText, timeout: float, slow: float = 0.0) -> WrittenPart:
        """What the node has of a text from ``wanted.start`` on; ``timeout`` seconds after its last answer it counts as
        silent, and ``slow`` seconds are enough for one that answers.

        Raises RemoteFailure (the node's own words), ChannelTimeout, ChannelUnavailable, WireError.
        """
        waiting = _Waiting(wanted, asyncio.get_running_loop().create_future())
        self._waiting[wanted.order] = waiting
        self._begun.set()
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_on(), name="texts of a node")
        try:
            return await self._awaited(waiting.answer, timeout, max(timeout, slow))
        finally:
            if self._waiting.get(wanted.order) is waiting:
                del self._waiting[wanted.order]

    async def _awaited(self, answer: asyncio.Future[WrittenPart], timeout: float, slow: float) -> WrittenPart:
        began = time.monotonic()
        while True:
            until = min(max(began, self._heard) + timeout, began + slow)
            done, _ = await asyncio.wait([answer], timeout=max(until - time.monotonic(), 0.0))
            if done:
                return answer.result()
            now = time.monotonic()
            if now >= max(began, self._heard) + timeout:
                raise ChannelTimeout(f"The node wrote nothing within {timeout:g} s")
            if now >= began + slow:
                what = "The node answers, and has too much to do: it wrote nothing of this text"
                raise ChannelTimeout(f"{what} within {slow:g} s")

    async def took_all(self, order: Hash32, start: int) -> bool:
        """Whether all that the node gave of a text ends before ``start``, once no question about it is open: it
        concludes no less than it gave, and two questions that overlap are both answered."""
        about = [question for question, orders in self._questions.items() if order in orders]
        if about:
            await asyncio.wait(about)
        return self._dropped.get(order, 0) <= start

    @property
    def idle(self) -> bool:
        """Whether nobody waits for a text."""
        return not self._waiting and not self._questions and (self._asking is None or self._asking.done())

    async def close(self) -> None:
        """Ask no more; who waits hears that the channel was closed."""
        tasks: list[asyncio.Task[Any]] = [*self._questions, *([] if self._asking is None else [self._asking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fail(tuple(one.wanted for one in self._waiting.values()), ChannelUnavailable("The channel was closed"))

    async def _ask_on(self) -> None:
        while self._waiting:
            await asyncio.sleep(SETTLE_SECONDS if self._several else 0)
            self._begun.clear()
            wanted = tuple(one.wanted for one in list(self._waiting.values())[:SEQUENCES_LIMIT])
            if not wanted:
                continue
            question = asyncio.create_task(self._ask(wanted))
            self._questions[question] = frozenset(one.order for one in wanted)
            question.add_done_callback(lambda done: self._questions.pop(done, None))
            begun = asyncio.ensure_future(self._begun.wait())
            try:
                await asyncio.wait({question, begun}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                begun.cancel()
            if not question.done() or not question.result():
                # Another text waits now; or the node had nothing to say, and may not make this side ask at its pace.
                await asyncio.sleep(PACE_SECONDS)

    async def _ask(self, wanted: Sequence[WantedText]) -> int:
        """How many texts the answer has something of."""
        try:
            channel = self._channel()
            await channel.open(wait=QUESTION_SECONDS)
            header = Proceed(len(wanted), DECODE_LIMIT)
            frame = await channel.request(header, encode_wanted(wanted), QUESTION_SECONDS)
            if not isinstance(frame.header, Decoded):
                raise WireError("An answer to another question", type(frame.header).__name__, "Ask another node.")
            parts = _answering(decode_parts(frame.payload, frame.header.texts), wanted)
        except ChannelTimeout:
            log.info("a node has left a question about %d texts unanswered", len(wanted))
        except RemoteFailure as error:
            self._heard = time.monotonic()
            if error.remote_code != Overloaded.code:
                self._fail(wanted, error)
        except ChannelUnavailable as error:
            await self._reconnect(wanted, error)
        except (OverlayError, ProtocolError) as error:
            self._fail(wanted, error)
        else:
            self._heard = time.monotonic()
            self._broken, self._several = False, len(parts) > 1 or len(wanted) > 1
            for part in parts:
                self._tell(channel.endpoint, part)
            return len(parts)
        return 0

    async def _reconnect(self, wanted: Sequence[WantedText], broke: ChannelUnavailable) -> None:
        """Once: a connection that breaks again before it has brought an answer is none."""
        again, self._broken = self._broken, True
        try:
            if again:
                raise broke
            await self._channel().open()
        except (OverlayError, ProtocolError):
            self._broken = False
            self._fail(wanted, broke)

    def _tell(self, endpoint: str, part: DecodedPart) -> None:
        waiting = self._waiting.get(part.order)
        if waiting is None or waiting.wanted.start != part.start or waiting.answer.done():
            # It was told by an answer to an earlier question, or has lost its patience.
            if isinstance(part, WrittenPart):
                self._note_dropped(part)
            return
        if isinstance(part, HaltedPart):
            waiting.answer.set_exception(remote_failure(endpoint, part.failure))
        else:
            waiting.answer.set_result(part)
        del self._waiting[part.order]

    def _note_dropped(self, part: WrittenPart) -> None:
        self._dropped[part.order] = max(self._dropped.get(part.order, 0), part.start + len(part.tokens))
        self._dropped.move_to_end(part.order)
        if len(self._dropped) > DROPPED_TEXTS:
            self._dropped.popitem(last=False)

    def _fail(self, wanted: Sequence[WantedText], error: Exception) -> None:
        for one in wanted:
            waiting = self._waiting.get(one.order)
            if waiting is not None and waiting.wanted == one and not waiting.answer.done():
                waiting.answer.set_exception(error)
                del self._waiting[one.order]


def _answering(parts: Sequence[DecodedPart], wanted: Sequence[WantedText]) -> Sequence[DecodedPart]:
    """The parts, once all of them are of texts that were asked for; raises WireError."""
    asked = {one.order: one.start for one in wanted}
    for part in parts:
        if asked.get(part.order) != part.start:
            raise WireError("A part of a text that was not asked for", part.start, "Ask another node.")
    return parts
