"""Listening to the node that answers, wherever it is, and asking verifiers for what they signed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import NamedTuple

from troth.node.direct.listening import LISTEN_SECONDS, AnswerListening
from troth.node.group.group import Group
from troth.protocol.errors import WireError
from troth.protocol.market import canonical
from troth.protocol.market.bodies import Said
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Result
from troth.protocol.request import output_hash
from troth.protocol.tensors import TOKEN_BYTES, tokens_from_bytes
from troth.protocol.tokens import Finish
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_group import Heard, Listen, Recall, Recalled

PATIENCE = LISTEN_SECONDS + 5.0
REST_SECONDS = 0.5
"""Between two answers without a token: an honest node waits long before it gives one."""
WORD_LIMIT = 1 << 13
"""Bytes of one signed word."""


class Piece(NamedTuple):
    """Consecutive tokens of the answer, with packed log probabilities for all or none of them, the node's signature
    over all tokens so far, and at the end why it ends and the node's signed result."""

    tokens: tuple[int, ...]
    logprobs: tuple[bytes, ...]
    signature: bytes
    finished: Finish | None
    result: Signed[Result] | None


class AnswerReader:
    """Asks nodes of the group, this one included."""

    def __init__(self, members: Group, listening: AnswerListening, vocabulary: int, domain: Domain) -> None:
        self._members, self._listening = members, listening
        self._vocabulary, self._domain = vocabulary, domain

    async def pieces(self, node: Address, order: Hash32, salt: Hash32) -> AsyncGenerator[Piece, None]:
        """What the node says, each piece under its signature, up to its result.

        Raises:
            OverlayError: it cannot be reached, or refuses.
            ProtocolError, NodeError: what it says cannot be read or is not signed, or this node itself refuses.
        """
        known: list[int] = []
        while True:
            begun = time.monotonic()
            heard, payload = await self._listen(node, Listen(order, salt, len(known)))
            if heard.start != len(known):
                raise WireError("The node answers for another position", heard.start, "Listen to another node.")
            piece = self._read(heard, payload)
            if piece.tokens:
                known += piece.tokens
                said = Said(order, output_hash(salt, known))
                Signed(said, piece.signature).require(self._domain, node)
            if piece.tokens or piece.result is not None:
                yield piece
            if piece.result is not None:
                return
            if not piece.tokens:
                await asyncio.sleep(max(0.0, REST_SECONDS - (time.monotonic() - begun)))

    async def recall(self, node: Address, message: Recall) -> bytes:
        """What a verifier signed; nothing where it has not yet. Raises as ``pieces`` does."""
        if node == self._members.own:
            return (await self._listening.recall(message))[1]
        frame = await self._members.channel(node).request(message, timeout=PATIENCE)
        if not isinstance(frame.header, Recalled) or len(frame.payload) > WORD_LIMIT:
            raise WireError("The node answers with another message", type(frame.header).__name__, "Ask another.")
        return bytes(frame.payload)

    def _read(self, heard: Heard, payload: bytes | memoryview) -> Piece:
        size = heard.count * TOKEN_BYTES
        tokens = tokens_from_bytes(payload[:size], heard.count, self._vocabulary) if heard.count else ()
        logprobs = heard.logprobs if len(heard.logprobs) == len(tokens) else ()
        rest = bytes(payload[size:])
        result = canonical.decode(Signed[Result], rest, WORD_LIMIT) if rest and heard.finished else None
        return Piece(tokens, logprobs, heard.signature or b"", heard.finished, result)

    async def _listen(self, node: Address, message: Listen) -> tuple[Heard, bytes | memoryview]:
        if node == self._members.own:
            return await self._listening.listen(message)
        frame = await self._members.channel(node).request(message, timeout=PATIENCE)
        if not isinstance(frame.header, Heard):
            raise WireError("The node answers with another message", type(frame.header).__name__, "Ask another.")
        return frame.header, frame.payload
