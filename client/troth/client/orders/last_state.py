"""The last state of an answer, as its node signed it: the scheduler opens it, the client checks it.

It is asked for between the results and the draw, so that nobody who shows it knows yet whether the answer is drawn. The
node's result commits to it, and the verifiers of a drawn answer compare it with their own: who bends it is found like
who makes up a token. A scheduler that shows none, or another, owes nothing by contract and loses its customer.
"""

from __future__ import annotations

import asyncio
import logging

import numpy as np
from numpy.typing import NDArray

from troth.chain.retries import attempts_of
from troth.client.errors import ClientError
from troth.client.orders.calls import MarketCalls, SchedulerRefusal
from troth.client.orders.failing import StateUnknown, what_happened
from troth.client.orders.journal import OrderRecord
from troth.client.orders.session import PayerSession, TabContext
from troth.client.orders.updates import StateUpdate
from troth.protocol.errors import ProtocolError
from troth.protocol.market.bodies import Results
from troth.protocol.market.last_row import LastRow, require_last_row
from troth.protocol.request import from_canonical_bytes
from troth.protocol.types import Hash32
from troth.transport.errors import OverlayError

_log = logging.getLogger(__name__)

STATE_SECONDS = 10.0
"""How long a scheduler may take to show a row that it has on disk."""
PAUSE_SECONDS = 0.2
NOT_THERE_YET = frozenset({"not_yet", "unknown_order"})
"""Where the order went by way of a node, results may be here before its scheduler has them."""


async def last_state(session: PayerSession, tab_context: TabContext, entry: OrderRecord) -> StateUpdate:
    """Ask for the state of an order whose results are stored, and check it against them.

    What does not come, or is not what was signed, is told and not raised: the order goes on to its check and its end.
    """
    try:
        async with asyncio.timeout(STATE_SECONDS):
            return StateUpdate(entry.identifier, await _opened(session, tab_context, entry.identifier))
    except (ClientError, OverlayError, ProtocolError, TimeoutError) as error:
        _log.warning("the state of an answer was not shown: %s", what_happened(error))
        failure = StateUnknown(
            f"The scheduler did not open the state of the answer: {what_happened(error)}",
            entry.name[:12],
            "The order goes on, is checked like any other and has its price. Ask again, or ask another scheduler.",
        )
        return StateUpdate(entry.identifier, None, failure)


async def _opened(session: PayerSession, tab_context: TabContext, order: Hash32) -> NDArray[np.float32]:
    entry = session.journal.entry(order)
    submission, results = entry.submission, entry.read("results", Results)
    assert submission is not None
    assert results is not None
    calls = await session.calls(tab_context)
    shown = await _shown(calls, order, submission.salt)
    view = session.view(submission.order.message, submission.tab)
    prompt = from_canonical_bytes(submission.request).prompt_tokens
    return require_last_row(shown, results.results[-1].message, view.rules, prompt, entry.tokens)


async def _shown(calls: MarketCalls, order: Hash32, salt: Hash32) -> LastRow:
    async for attempt in attempts_of(_comes_later, pause=PAUSE_SECONDS):
        with attempt:
            return await calls.last_row(order, salt)
    raise AssertionError("it is asked until it is there")


def _comes_later(error: Exception) -> bool:
    return isinstance(error, SchedulerRefusal) and error.code in NOT_THERE_YET
