"""Orders under way: each runs to the chain's verdict in the background, whether or not anybody still listens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from troth.chain.errors import ChainError
from troth.client.asking import Finished, Update, Verdict, ask
from troth.client.errors import (
    ClientError,
    OutdatedOffer,
    OverlayFailed,
    ProofError,
    SchedulerUnreachable,
    StreamError,
)
from troth.client.gateway.connection import Connection, Held
from troth.client.gateway.errors import GatewayRefusal, NotReady, TooMany, Unsupported
from troth.client.gateway.failures import failure_of
from troth.client.gateway.following import verdict_on_chain
from troth.client.gateway.ledger import Ledger
from troth.client.gateway.limits import MOST_FOLLOWED, RETRY_AFTER
from troth.client.gateway.metrics import Metrics
from troth.client.ordering import SignedOrder
from troth.client.session import Session
from troth.client.standing import standing_of
from troth.overlay.errors import OverlayError
from troth.overlay.logs import task_bound
from troth.protocol.types import Address

Told = Update | GatewayRefusal
Listener = Callable[[Told], None]
_log = logging.getLogger(__name__)
_FAILURES = (ClientError, ChainError, OverlayError)
_MENDABLE = (SchedulerUnreachable, StreamError, ProofError, OverlayError, OutdatedOffer)


class Orders:
    """At most `most` orders are being answered at a time."""

    def __init__(self, connection: Connection[Session], ledger: Ledger, metrics: Metrics, most: int) -> None:
        self._connection = connection
        self._ledger = ledger
        self._metrics = metrics
        self._most = most
        self._taken = 0
        self._running: dict[asyncio.Task[None], SignedOrder] = {}

    def take_places(self, count: int) -> None:
        """Take places for so many orders; TooMany when there are not enough, Unsupported when there never will be."""
        if count > self._most:
            what = f"This gateway answers at most {self._most} orders at a time, and each choice is one"
            raise Unsupported(what, count, "Ask for fewer choices, or raise --concurrent.", param="n")
        if self._taken + count > self._most or len(self._running) + count > MOST_FOLLOWED:
            raise TooMany("All places are taken", f"{self._taken} orders are being answered", RETRY_AFTER)
        self._taken += count
        self._metrics.running.set(self._taken)

    def free_places(self, count: int) -> None:
        """Give places back."""
        self._taken -= count
        self._metrics.running.set(self._taken)

    def unopened(self, held: Held[Session]) -> int:
        """Wei of orders that were sent and that the chain has not locked a fee for yet."""
        state = held.session.follower.state
        return sum(order.fee for order in self._running.values() if standing_of(state, order.task_id) is None)

    def running(self) -> set[str]:
        """Ids of the tasks that are followed now."""
        return {"0x" + order.task_id.hex() for order in self._running.values()}

    def start(self, held: Held[Session], signed: SignedOrder, listener: Listener, near: Address | None = None) -> None:
        """Send an order, for which a place was taken, and tell the listener what becomes of it.

        It enters at the node `near`, where the session can choose that.
        """
        task = asyncio.create_task(self._run(held, signed, listener, near), name="gateway order")
        self._running[task] = signed
        task.add_done_callback(lambda done: self._running.pop(done, None))

    async def close(self) -> None:
        """Stop listening; the tasks go on, and their receipts are brought up to date from the chain."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, held: Held[Session], signed: SignedOrder, listener: Listener, near: Address | None) -> None:
        answered, whole, in_place = False, False, True
        with held.use() as session, task_bound(signed.task_id):
            try:
                async with aclosing(ask(session.near(near), signed)) as updates:
                    async for update in updates:
                        answered = True
                        if isinstance(update, Finished):
                            whole, in_place = True, self._leave(in_place)
                        self._note(signed, update)
                        listener(update)
            except asyncio.CancelledError:
                what = "The gateway stopped before this order's end"
                listener(NotReady(what, "", "GET /v1/receipts shows how the task ends.", "gateway"))
                raise
            except _FAILURES as error:
                self._report(held.session, error)
                if not (whole and await self._decided(held, signed, error, listener)):
                    await self._failed(held, signed, error, listener, answered=answered)
            finally:
                self._leave(in_place)

    def _leave(self, in_place: bool) -> bool:
        if in_place:
            self.free_places(1)
        return False

    def _note(self, signed: SignedOrder, update: Update) -> None:
        if isinstance(update, Verdict):
            self._ledger.paid("0x" + signed.task_id.hex(), update.cost)
            self._metrics.decided(update.outcome, update.cost)
            _log.info("%s, %d wei paid", update.outcome, update.cost)

    def _report(self, session: Session, error: Exception) -> None:
        if isinstance(error, _MENDABLE) and not _of_one_node(session, error):
            self._connection.report(error)

    async def _decided(self, held: Held[Session], signed: SignedOrder, error: Exception, listener: Listener) -> bool:
        """Whether the chain decided on an answer that had come whole before its stream was lost."""
        if not isinstance(error, SchedulerUnreachable | StreamError | OverlayError):
            return False
        verdict = await verdict_on_chain(held.session, signed)
        if verdict is not None:
            self._note(signed, verdict)
            listener(verdict)
        return verdict is not None

    async def _failed(
        self, held: Held[Session], signed: SignedOrder, error: Exception, listener: Listener, *, answered: bool
    ) -> None:
        refusal = await failure_of(held.session, signed, error, answered=answered)
        if refusal.troth.get("charged") is False:
            self._ledger.paid("0x" + signed.task_id.hex(), 0)
        # Not by the code: a scheduler makes up as many of those as it likes.
        self._metrics.failures.labels(refusal.troth.get("hop", "wallet")).inc()
        _log.warning("the order failed: %s", refusal.code)
        listener(refusal)


def _of_one_node(session: Session, error: Exception) -> bool:
    """Whether it is the fault of the node that an order went through: other nodes are reached by the same session.

    New circuits because of it would let any node make its clients build paths until bad relays are on them.
    """
    if session.destination != "node":
        return False
    return error.hop == "node" if isinstance(error, OverlayFailed) else isinstance(error, StreamError | ProofError)
