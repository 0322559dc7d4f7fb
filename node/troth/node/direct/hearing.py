"""Listening to the node that answers, wherever it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from troth.node.direct.listening import LISTEN_SECONDS, Listening
from troth.node.direct.seams import Group
from troth.protocol.errors import WireError
from troth.protocol.tensors import tokens_from_bytes
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_group import Heard, Listen

PATIENCE = LISTEN_SECONDS + 5.0
REST_SECONDS = 0.5
"""Between two answers without a token: an honest node waits long before it gives one."""

Ask = Callable[[Listen], Awaitable[tuple[Heard, bytes | memoryview]]]


class Piece(NamedTuple):
    """Consecutive tokens of the answer from `start` on, with packed log probabilities for all or none of them; at the
    end the signature over the whole answer."""

    start: int
    tokens: tuple[int, ...]
    logprobs: tuple[bytes, ...]
    signature: bytes | None


class Hearing:
    """Asks nodes of the group for tokens, this one included."""

    def __init__(self, group: Group, listening: Listening, vocabulary: int) -> None:
        self._group, self._listening, self._vocabulary = group, listening, vocabulary

    async def pieces(
        self, node: Address, task_id: Hash32, salt: Hash32, known: Callable[[], int]
    ) -> AsyncIterator[Piece]:
        """What the node says from token `known()` on, until it has signed the whole answer.

        Raises:
            OverlayError: it cannot be reached, or refuses.
            ProtocolError, NodeError: what it says cannot be read, or this node itself refuses.
        """
        ask = self._ask_here if node == self._group.own else self._asking(node)
        while True:
            start, begun = known(), time.monotonic()
            heard, payload = await ask(Listen(task_id, salt, start))
            tokens = tokens_from_bytes(payload, heard.count, self._vocabulary) if heard.count else ()
            if heard.start != start:
                raise WireError("The node answers for another position", heard.start, "Listen to another node.")
            if heard.count or heard.finished:
                signature = heard.signature if heard.finished else None
                yield Piece(start, tokens, heard.logprobs if len(heard.logprobs) == len(tokens) else (), signature)
            if heard.finished:
                return
            if not heard.count:
                await asyncio.sleep(max(0.0, REST_SECONDS - (time.monotonic() - begun)))

    async def _ask_here(self, message: Listen) -> tuple[Heard, bytes]:
        return await self._listening.listen(message)

    def _asking(self, node: Address) -> Ask:
        async def ask(message: Listen) -> tuple[Heard, bytes | memoryview]:
            frame = await self._group.channel(node).request(message, timeout=PATIENCE)
            if not isinstance(frame.header, Heard):
                raise WireError("The node answers with another message", type(frame.header).__name__, "Ask another.")
            return frame.header, frame.payload

        return ask
