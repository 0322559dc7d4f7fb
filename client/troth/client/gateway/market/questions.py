"""Questions under way: each runs to the end of its check in the background, whether or not anybody still listens."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing

from troth.client.gateway.connection import Held
from troth.client.gateway.errors import HopFailed, NotReady, TooMany, Unsupported
from troth.client.gateway.ledger import Ledger
from troth.client.gateway.limits import MOST_FOLLOWED, RETRY_AFTER
from troth.client.gateway.market.completion import Asked, TabCompletion
from troth.client.gateway.market.failures import refusal_of
from troth.client.gateway.metrics import Metrics
from troth.client.orders.asking import ask
from troth.client.orders.running import Running
from troth.client.orders.session import FAILURES
from troth.client.orders.updates import Finished, Served, Text, Update
from troth.client.orders.wishes import Wish

_log = logging.getLogger(__name__)


class Questions:
    """At most `most` are being answered at a time."""

    def __init__(self, ledger: Ledger, metrics: Metrics, most: int) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._most = most
        self._taken = 0
        self._running: set[asyncio.Task[None]] = set()

    def take_places(self, count: int) -> None:
        """Take places for so many questions; TooMany when there are not enough, Unsupported when there never will."""
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

    def start(
        self, held: Held[Running], completion: TabCompletion, number: int, prompt: tuple[int, ...], wish: Wish
    ) -> None:
        """Ask one choice's question, for which a place was taken, and tell the completion what becomes of it."""
        work = self._run(held, completion, number, prompt, wish)
        task = asyncio.create_task(work, name="gateway question")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Stop listening; what was ordered is looked after by the keeper of the next start."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self, held: Held[Running], completion: TabCompletion, number: int, prompt: tuple[int, ...], wish: Wish
    ) -> None:
        asked = completion.signed[number]
        assert isinstance(asked, Asked)
        in_place = True
        with held.use() as running:
            try:
                async with aclosing(ask(running.session, prompt, wish, asked.question)) as updates:
                    async for update in updates:
                        if isinstance(update, Finished):
                            in_place = self._leave(in_place)
                        self._tell(completion, number, update)
            except asyncio.CancelledError:
                what = "The gateway stopped before this order's end"
                completion.hear(number, NotReady(what, "", "GET /v1/receipts shows how it ends.", "gateway"))
                raise
            except FAILURES as error:
                self._failed(completion, number, error)
            finally:
                self._leave(in_place)

    def _leave(self, in_place: bool) -> bool:
        if in_place:
            self.free_places(1)
        return False

    def _tell(self, completion: TabCompletion, number: int, update: Update) -> None:
        told = completion.note(number, update)
        if isinstance(update, Text | Finished):
            completion.hear(number, update)
        elif told is not None:
            ended = completion.ends[number]
            self._ledger.paid("0x" + completion.signed[number].task_id.hex(), completion.cost_of(number))
            self._metrics.decided(str(ended.outcome), completion.cost_of(number))
            completion.hear(number, told)
        elif isinstance(update, Served):
            # Now a refusal of the scheduler can no longer be told by the HTTP status.
            completion.heard(number)

    def _failed(self, completion: TabCompletion, number: int, error: Exception) -> None:
        orders = (completion.orders[number],) if number in completion.orders else ()
        refusal = refusal_of(error, orders)
        if refusal.troth.get("charged") is False:
            self._ledger.paid("0x" + completion.signed[number].task_id.hex(), 0)
        hop = refusal.hop if isinstance(refusal, HopFailed) else "wallet"
        self._metrics.failures.labels(hop).inc()
        _log.warning("the order failed: %s", refusal.code)
        completion.hear(number, refusal)
