"""The questions of completions: each runs to the end of its check, whether or not anybody still reads."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from troth.client.errors import ReceiptsUnreadable
from troth.client.gateway.completion import Completion
from troth.client.gateway.connection import SharedSession
from troth.client.gateway.errors import (
    HopFailed,
    NotReady,
    TooMany,
    Unsupported,
)
from troth.client.gateway.failures import refusal_of
from troth.client.gateway.guard import MOST_FOLLOWED
from troth.client.gateway.ledger import CompletionLedger
from troth.client.gateway.metrics import GatewayMetrics
from troth.client.gateway.request import MOST_CHOICES
from troth.client.orders.asking import ask
from troth.client.orders.failing import what_happened
from troth.client.orders.running import Running
from troth.client.orders.updates import (
    EndedUpdate,
    FinishedUpdate,
    ServedUpdate,
    StateUpdate,
    TextUpdate,
    Update,
)
from troth.client.orders.wishes import Wish

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _WaitingQuestions:
    """The questions of one completion; ``waiting``: numbers and prompts of those that no place was free for yet."""

    held: SharedSession[Running]
    completion: Completion
    wish: Wish
    waiting: deque[tuple[int, tuple[int, ...]]]


class Questions:
    """At most `most` are being answered at a time."""

    def __init__(self, ledger: CompletionLedger, metrics: GatewayMetrics, most: int) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._most = most
        self._taken = 0
        self._running: set[asyncio.Task[None]] = set()

    def take_places(self, count: int, *, in_turn: bool = False) -> int:
        """Take places for so many questions, and say how many; TooMany when there are not enough, Unsupported when
        there never will. ``in_turn``: where there are many, some ask in the places of others that were answered."""
        count = min(count, MOST_CHOICES, self._most) if in_turn else count
        if count > self._most:
            what = f"This gateway answers at most {self._most} orders at a time, and each choice is one"
            raise Unsupported(what, count, "Ask for fewer choices, or raise --concurrent.", param="n")
        if self._taken + count > self._most or len(self._running) + count > MOST_FOLLOWED:
            raise TooMany("All places are taken", f"{self._taken} orders are being answered")
        self._taken += count
        self._metrics.running.set(self._taken)
        return count

    def free_places(self, count: int) -> None:
        """Give places back."""
        self._taken -= count
        self._metrics.running.set(self._taken)

    def start(
        self,
        held: SharedSession[Running],
        completion: Completion,
        prompts: Sequence[tuple[int, ...]],
        wish: Wish,
        places: int,
    ) -> None:
        """Ask a completion's questions in the places that were taken for it, and tell it what becomes of them."""
        batch = _WaitingQuestions(held, completion, wish, deque(enumerate(prompts)))
        for _ in range(places):
            self._next(batch)

    def _next(self, batch: _WaitingQuestions) -> None:
        number, prompt = batch.waiting.popleft()
        task = asyncio.create_task(self._run(batch, number, prompt), name="gateway question")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Stop listening; what was ordered is looked after by the keeper of the next start."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, batch: _WaitingQuestions, number: int, prompt: tuple[int, ...]) -> None:
        completion = batch.completion
        asked = completion.asked[number]
        in_place = True
        with batch.held.use() as running:
            try:
                answer = ask(running.session, prompt, batch.wish, asked.question, ending=completion.endings[number])
                async with aclosing(answer) as updates:
                    async for update in updates:
                        if isinstance(update, FinishedUpdate):
                            in_place = self._leave(batch, in_place)
                        self._tell(batch, number, update)
                if number not in completion.orders:
                    self._note_cost(completion, number, 0)  # its reader left before it was ordered
            except asyncio.CancelledError:
                self._drop(batch)
                what = "The gateway stopped before this order's end"
                completion.hear(number, NotReady(what, "", "GET /v1/receipts shows how it ends.", "gateway"))
                raise
            except Exception as error:  # noqa: BLE001 - also what nobody foresaw: whoever reads would wait for ever
                self._drop(batch)
                self._failed(completion, number, error)
            finally:
                self._leave(batch, in_place)

    def _leave(self, batch: _WaitingQuestions, in_place: bool) -> bool:
        """Give a question's place to the next one of its completion, or back."""
        if in_place:
            if batch.completion.left:
                self._drop(batch)
            if batch.waiting:
                self._next(batch)
            else:
                self.free_places(1)
        return False

    def _drop(self, batch: _WaitingQuestions) -> None:
        """Ask no more of a completion's questions: one failed, or nobody reads the answers."""
        for number, _ in batch.waiting:
            self._note_cost(batch.completion, number, 0)
        batch.waiting.clear()

    def _tell(self, batch: _WaitingQuestions, number: int, update: Update) -> None:
        completion = batch.completion
        if isinstance(update, StateUpdate) and update.failure is not None:
            self._drop(batch)
            self._failed(completion, number, update.failure)
        completion.note(number, update)
        if isinstance(update, EndedUpdate):
            cost = completion.cost_of(number)
            self._note_cost(completion, number, cost)
            self._metrics.ended(str(update.outcome), cost)
        if isinstance(update, TextUpdate | FinishedUpdate | EndedUpdate):
            completion.hear(number, update)
        elif isinstance(update, ServedUpdate):
            # Now a refusal of the scheduler can no longer be told by the HTTP status.
            completion.heard(number)

    def _note_cost(self, completion: Completion, number: int, cost: int) -> None:
        """What a question cost in the end. Where the disk does not take it, its fee counts against the day's budget:
        whoever reads is told of the answer all the same."""
        try:
            self._ledger.paid("0x" + completion.asked[number].task_id.hex(), cost)
        except ReceiptsUnreadable as error:
            _log.warning("what a question cost was not noted: %s", error)

    def _failed(self, completion: Completion, number: int, error: Exception) -> None:
        orders = (completion.orders[number],) if number in completion.orders else ()
        refusal = refusal_of(error, orders)
        if refusal.troth.get("charged") is False:
            self._note_cost(completion, number, 0)
        hop = refusal.hop if isinstance(refusal, HopFailed) else "wallet"
        self._metrics.failures.labels(hop).inc()
        named = ", ".join(one[:12] for one in orders) or "no order was made"
        _log.warning("the question failed (%s): %s: %s", named, refusal.code, what_happened(error))
        completion.hear(number, refusal)
