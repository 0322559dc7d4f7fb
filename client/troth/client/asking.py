"""One question from order to verdict, as a stream of updates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from troth.client.chosen import Chosen
from troth.client.errors import ClientError, OutdatedOffer, StreamError
from troth.client.exchange import Assigned, Exchange, Finished, Posted, Text, Update
from troth.client.ordering import SignedOrder
from troth.client.session import Session
from troth.client.updates import Verdict

__all__ = ["Assigned", "Chosen", "Finished", "Posted", "Text", "Update", "Verdict", "ask", "ask_afresh"]

RENEWALS = 3
"""New offers that are signed for one question: a scheduler that never takes its own is not followed for ever."""
TOKEN_SILENCE_SECONDS = 180.0
"""How long the stream may be silent before the answer is whole: a slow prefill of a long prompt takes minutes."""
VERDICT_SILENCE_SECONDS = 1800.0
"""How long it may be silent afterwards: a party that does not reveal holds the verdict up for a window of blocks."""


async def ask(session: Session, signed: SignedOrder) -> AsyncGenerator[Update, None]:
    """Send a prepared order and yield what happens, until the chain has decided.

    Raises:
        ProofError: the scheduler contradicts the chain or its own proofs.
        SchedulerRefused: it refused or gave up; the remedy says what the chain holds of the fee.
        StreamError: the stream broke off; `troth client receipts` shows how the task ends.
    """
    session.receipts.ordered(signed)
    exchange = Exchange(session, signed)
    try:
        async with aclosing(session.api.order(signed.to_json())) as lines:
            while (line := await _next(lines, exchange)) is not None:
                for update in await exchange.read(line):
                    yield update
                if exchange.outcome is not None:
                    return
        raise _lost("The scheduler's stream ended before the verdict", exchange)
    except ClientError as error:
        session.receipts.failed(signed.task_id, error.what)
        raise
    finally:
        # Also when the user interrupts: what has arrived belongs to whoever pays for it.
        session.receipts.answered(signed.task_id, exchange.tokens)


async def ask_afresh(
    session: Session, signed: SignedOrder, prepare: Callable[[Session], Awaitable[SignedOrder]]
) -> AsyncGenerator[Update | SignedOrder, None]:
    """As `ask`; where nodes have moved and the offer is outdated, the new one is signed, sent, and yielded first.

    Whoever refused an order still holds it, and may open it until its deadline: each one signed is a fee at stake. So
    there are few, and none for a split that was signed before, which an honest scheduler has no reason to refuse.

    Raises:
        OutdatedOffer: the new offer costs more, was signed before, or is one of more than RENEWALS.
    """
    limit, tried = signed.fee, {session.offer.ends}
    for left in reversed(range(RENEWALS + 1)):
        try:
            async with aclosing(ask(session, signed)) as updates:
                async for update in updates:
                    yield update
            return
        except OutdatedOffer:
            if not left:
                raise
            session = await session.renewed()
            if session.offer.fee > limit or session.offer.ends in tried:
                raise
            tried.add(session.offer.ends)
        signed = await prepare(session)
        yield signed


async def _next(lines: AsyncIterator[dict[str, Any]], exchange: Exchange) -> dict[str, Any] | None:
    limit = TOKEN_SILENCE_SECONDS if exchange.finished is None else VERDICT_SILENCE_SECONDS
    try:
        async with asyncio.timeout(limit):
            return await anext(lines, None)
    except TimeoutError as error:
        raise _lost(f"The scheduler said nothing for {limit:g} s", exchange) from error


def _lost(what: str, exchange: Exchange) -> StreamError:
    return StreamError(
        what,
        exchange.name,
        f"`troth client receipts {exchange.name[:12]}` follows the chain (--answer fetches the answer again); "
        "past the scheduler's deadline `troth client close` gives the fee back.",
    )
