"""The last segment's inferencer chooses a token, and says how likely it was where the message asks for that."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, Protocol

import msgspec
from numpy.typing import NDArray

from troth.node.engine.interface import Engine, TokenDraw, chooses
from troth.node.errors import BadInput
from troth.node.orders.session import SegmentSession
from troth.protocol.logprobs import logprobs_of, logprobs_to_bytes
from troth.protocol.masks import RowRule
from troth.protocol.tokens import Sampling, choose, noise

Asked = int | msgspec.UnsetType
Packed = bytes | msgspec.UnsetType


class LogitSource(Protocol):
    """Where logits come from."""

    @property
    def engine(self) -> Engine: ...


class ChosenToken(NamedTuple):
    """A token, and its packed log probabilities if they were asked for."""

    token: int
    logprobs: Packed = msgspec.UNSET


async def next_token(
    context: LogitSource, session: SegmentSession, rows: NDArray[Any], *, position: int, asked: Asked
) -> tuple[ChosenToken, float]:
    """The token that one post-norm row, shape (1, hidden size), chooses at a position; and the head's seconds."""
    engine, plain = context.engine, asked is msgspec.UNSET and session.text.rules is None
    if plain and chooses(engine):
        draw = TokenDraw(Sampling.of(session.seat.request), session.seat.noise_seed, position)
        token, seconds = await engine.choose(session.key, rows, draw)
        return ChosenToken(token), seconds
    logits, seconds, _ = await engine.logits(rows)
    if plain and not session.seat.request.temperature_millionths:
        # Without noise and rules it takes microseconds, less than waking a thread.
        return ChosenToken(_choose(session, logits[0], position)), seconds
    return await asyncio.to_thread(_choose_and_tell, session, logits[0], position, asked), seconds


async def told_again(context: LogitSource, token: int, rows: NDArray[Any], asked: Asked) -> ChosenToken:
    """A token that was chosen before; how likely it was is computed anew from its row."""
    if asked is msgspec.UNSET:
        return ChosenToken(token)
    logits = (await context.engine.logits(rows)).rows
    return ChosenToken(token, await asyncio.to_thread(_tell, logits[0], token, asked))


def _choose_and_tell(session: SegmentSession, logits: NDArray[Any], position: int, asked: Asked) -> ChosenToken:
    token = _choose(session, logits, position)
    return ChosenToken(token, _tell(logits, token, asked))


def _choose(session: SegmentSession, logits: NDArray[Any], position: int) -> int:
    sampling = Sampling.of(session.seat.request)
    gumbel = noise(session.seat.noise_seed, position, len(logits)) if sampling.temperature > 0 else None
    return choose(logits, sampling, gumbel, _rule(session, position))


def _rule(session: SegmentSession, position: int) -> RowRule | None:
    """What transforms the row of a position, after all tokens before it."""
    rules = session.text.rules
    if rules is None:
        return None
    first = len(session.seat.request.prompt_tokens) - 1
    for before in range(first + rules.taken, position):
        if before not in session.text.emitted:
            raise BadInput("a token that transforms depend on was not chosen here", before, "Ask for every token.")
        rules.take(session.text.emitted[before])
    return rules.row()


def _tell(logits: NDArray[Any], token: int, asked: Asked) -> Packed:
    if isinstance(asked, msgspec.UnsetType):
        return msgspec.UNSET
    return logprobs_to_bytes(logprobs_of(logits, token, asked))
