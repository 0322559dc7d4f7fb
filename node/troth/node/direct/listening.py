"""Listen: the tokens of an answer go to the node that its request entered at, as they are chosen. Recall: so does what
this node signed in a check.

The request's salt is the key to an answer: who has it has the request. Whether an order is unknown or the salt is wrong
is not told. Papers were checked before a session began, so that nothing leaves here before it is paid.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import msgspec

from troth.node.errors import NodeBusy, OutOfOrder
from troth.node.orders.context import NodeContext
from troth.node.orders.session import SegmentSession
from troth.node.orders.telling import GrowingAnswer
from troth.node.orders.words import COMMITMENT, VERDICT
from troth.protocol.market.bodies import Said
from troth.protocol.request import output_hash
from troth.protocol.tensors import tokens_to_bytes
from troth.protocol.types import Hash32
from troth.protocol.wire_group import HEARD_LIMIT, Heard, Listen, Recall, Recalled

LISTEN_SECONDS = 10.0
"""How long a listener waits for the next token before it is told that there is none."""
RECALL_SECONDS = 10.0
LOOK_SECONDS = 0.05
"""Between two looks whether a word was signed."""
MOST_LISTENERS = 4096
"""Of all entries; the channel allows each of a group's 50 members fewer than a part of them."""
LISTENERS_PER_ORDER = 4
MOST_KEPT = 512
"""Answers that may be heard: more than sessions at once, since listeners come a moment after the end, too."""
KINDS = {"commitment": COMMITMENT, "verdict": VERDICT}


@dataclass(frozen=True, slots=True)
class _HeardAnswer:
    order: Hash32
    salt: Hash32
    telling: GrowingAnswer


class AnswerListening:
    """Answers Listen and Recall. ``began`` is told every session of this node.

    Args:
        context: keys and records.
        patience: seconds; see `LISTEN_SECONDS`.
    """

    def __init__(self, context: NodeContext, patience: float = LISTEN_SECONDS) -> None:
        self._context = context
        self._patience = patience
        self._answers: OrderedDict[bytes, _HeardAnswer] = OrderedDict()
        self._listeners: Counter[bytes] = Counter()
        self._begun = asyncio.Event()

    def began(self, session: SegmentSession) -> None:
        """A session of this node; those that write a whole answer can be listened to."""
        seat = session.seat
        if not (seat.infers and seat.is_first and seat.is_last):
            return
        self._answers[seat.order_id] = _HeardAnswer(seat.order_id, seat.salt, session.text.telling)
        while len(self._answers) > MOST_KEPT:
            self._answers.popitem(last=False)
        begun, self._begun = self._begun, asyncio.Event()
        begun.set()

    async def listen(self, message: Listen) -> tuple[Heard, bytes]:
        """What was chosen from `start` on, as soon as there is something; nothing after a while of silence.

        Raises:
            NodeBusy: too many listen.
            OutOfOrder: the session is over, and its answer was never whole.
        """
        with self._place(message.order), suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                return await self._heard(message)
        return Heard(message.start, 0), b""

    async def recall(self, message: Recall) -> tuple[Recalled, bytes]:
        """What this node signed in a check, as soon as it has; nothing after a while."""
        words, context = self._context.stores.words, self._context
        with self._place(message.order), suppress(TimeoutError):
            async with asyncio.timeout(min(self._patience, RECALL_SECONDS)):
                while True:
                    word = await context.write(lambda: words.find(message.order, message.segment, KINDS[message.kind]))
                    if word is not None:
                        return Recalled(), word
                    await asyncio.sleep(LOOK_SECONDS)
        return Recalled(), b""

    @contextmanager
    def _place(self, order: bytes) -> Iterator[None]:
        if self._listeners.total() >= MOST_LISTENERS or self._listeners[order] >= LISTENERS_PER_ORDER:
            raise NodeBusy("too many listen already", self._listeners.total(), "Wait for the scheduler's own stream.")
        self._listeners[order] += 1
        try:
            yield
        finally:
            self._listeners[order] -= 1
            if not self._listeners[order]:
                del self._listeners[order]

    async def _heard(self, message: Listen) -> tuple[Heard, bytes]:
        answer = await self._answer(message)
        telling, start = answer.telling, message.start
        await telling.reach(start)
        # Nothing where it was ended early, and more was heard by then than belongs to it.
        tokens = telling.tokens[start : start + HEARD_LIMIT]
        ended = telling.finished is not None and start + len(tokens) >= len(telling.tokens)
        if not tokens and not (ended and telling.result):
            raise OutOfOrder("the session is over", start, "Go on with the scheduler's own stream.")
        finished = telling.finished if ended else None
        signature = self._signed(answer, start + len(tokens)) if tokens else None
        heard = Heard(start, len(tokens), finished, signature, _told(telling, start, len(tokens)))
        return heard, tokens_to_bytes(tokens) + (telling.result if ended else b"")

    def _signed(self, answer: _HeardAnswer, written: int) -> bytes:
        said = Said(answer.order, output_hash(answer.salt, answer.telling.tokens[:written]))
        return self._context.operator.sign(said)

    async def _answer(self, message: Listen) -> _HeardAnswer:
        """The answer that is meant; the scheduler may need a moment longer than the listener."""
        while True:
            begun, answer = self._begun, self._answers.get(message.order)
            if answer is not None and hmac.compare_digest(answer.salt, message.salt):
                return answer
            await begun.wait()


def _told(telling: GrowingAnswer, start: int, count: int) -> tuple[bytes, ...]:
    """One packed entry a token, or none where some token has none."""
    found = telling.logprobs[start : start + count]
    told = tuple(one for one in found if not isinstance(one, msgspec.UnsetType))
    return told if len(told) == count else ()
