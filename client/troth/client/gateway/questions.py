"""Completions whose choices are questions: each runs to the end of its check, whether or not anybody still reads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.client.errors import ReceiptsUnreadable
from troth.client.gateway.completion import Completion
from troth.client.gateway.connection import SharedSession
from troth.client.gateway.errors import (
    AnswerRejected,
    FailureCost,
    GatewayRefusal,
    HopFailed,
    NotReady,
    TooMany,
    Unsupported,
)
from troth.client.gateway.failures import refusal_of
from troth.client.gateway.guard import MOST_FOLLOWED, RETRY_AFTER
from troth.client.gateway.ledger import CompletionLedger
from troth.client.gateway.metrics import GatewayMetrics
from troth.client.gateway.ordered import Told, whole
from troth.client.gateway.request import MOST_CHOICES
from troth.client.gateway.shapes import ReplyShapes
from troth.client.orders.asking import ask
from troth.client.orders.failing import what_happened
from troth.client.orders.own_check import spoken
from troth.client.orders.running import Running
from troth.client.orders.updates import (
    EndedUpdate,
    FinishedUpdate,
    OrderOutcome,
    RecomputedUpdate,
    SentUpdate,
    ServedUpdate,
    SettledUpdate,
    SignedUpdate,
    StateUpdate,
    TextUpdate,
    Update,
)
from troth.client.orders.wishes import Wish
from troth.protocol.amounts import Asset
from troth.protocol.market.signed import Opinion
from troth.protocol.types import Hash32

__all__ = ["GOOD", "GatewayRefusal", "PricedQuestion", "TabCompletion", "TabShapes", "new_question"]

GOOD = {str(OrderOutcome.UNDRAWN), str(OrderOutcome.CHECKED), str(OrderOutcome.UNCLEAR)}
"""Outcomes after which an answer is paid."""
COUNTED_SECONDS = 5.0
"""How long the end of an answer that met a stop waits for its cost: a question to the scheduler, and a signature."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PricedQuestion:
    """One choice: the id of its question, under which all its orders are found, and what it may cost."""

    question: str
    fee: int

    @property
    def task_id(self) -> Hash32:
        """The question's id as bytes."""
        return Hash32(bytes.fromhex(self.question))


def new_question() -> str:
    """An id of 32 bytes that nobody can guess."""
    return secrets.token_hex(32)


@dataclass
class TabCompletion(Completion):
    """What a reader of the answer sees; amounts in the asset's smallest unit."""

    asset: Asset = field(kw_only=True)
    orders: dict[int, str] = field(default_factory=dict)
    signed_results: dict[int, SignedUpdate] = field(default_factory=dict)
    ends: dict[int, EndedUpdate] = field(default_factory=dict)
    recomputed: dict[int, RecomputedUpdate] = field(default_factory=dict)
    states: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    _costed: set[int] = field(default_factory=set)
    _all_costed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The newest order of each choice; the question's id before there is one."""
        return tuple(self.orders.get(number, "0x" + one.task_id.hex()) for number, one in enumerate(self.signed))

    @property
    def cost(self) -> int:
        """By tokens once an answer is signed, before that the most that it may cost; nothing where it is not paid."""
        return sum(self.cost_of(number, one.fee) for number, one in enumerate(self.signed))

    def cost_of(self, number: int, most: int = 0) -> int:
        """That of one choice; ``most`` before its answer is signed."""
        ended, signed = self.ends.get(number), self.signed_results.get(number)
        if ended is not None:
            return ended.fee if str(ended.outcome) in GOOD else 0
        return most if signed is None else signed.fee

    @property
    def cached(self) -> int:
        """Tokens of the prompts that came from a node's cache, and cost less."""
        found = sum(one.cached for one in self.signed_results.values())
        return min(found, self.prompt_tokens * len(self.signed_results))

    @property
    def outcome(self) -> str:
        """ "pending" while an end is missing, else the first one that is not good, else that of the first choice."""
        if len(self.ends) < len(self.signed):
            return "pending"
        said = [str(self.ends[number].outcome) for number in sorted(self.ends)]
        return next((one for one in said if one not in GOOD), said[0])

    @property
    def advice(self) -> list[str]:
        """What the user may do, or what was done."""
        return [one.advice for one in self.ends.values() if one.advice]

    @property
    def own_check(self) -> str | None:
        """What the own model says: its first opinion that is no yes, else yes; None where it was not asked."""
        said = [spoken(self.recomputed[number].opinion) for number in sorted(self.recomputed)]
        return next((one for one in said if one != spoken(Opinion.ACCEPT)), said[0] if said else None)

    async def counted(self) -> None:
        """A choice that ended at a stop costs what was written by then, which its nodes sign a moment later."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COUNTED_SECONDS):
                await self._all_costed.wait()

    def hear(self, number: int, told: Told) -> None:
        """An order's update; what it costs is known once it is signed, or has failed."""
        super().hear(number, told)
        if number in self.signed_results or number in self.ends or isinstance(told, GatewayRefusal):
            self._costed.add(number)
        if len(self._costed) == len(self.signed):
            self._all_costed.set()

    def note(self, number: int, update: object) -> Told | None:
        """Take an update of a question; what the reader of the answer is to hear of it."""
        match update:
            case SentUpdate():
                self.orders[number] = "0x" + update.order.hex()
                return None
            case SignedUpdate():
                self.signed_results[number] = update
                return None
            case StateUpdate() if update.state is not None:
                self.states[number] = update.state
                return None
            case RecomputedUpdate():
                self.recomputed[number] = update
                return None
            case EndedUpdate():
                self.ends[number] = update
                return SettledUpdate(str(update.outcome), self.cost_of(number))
            case _:
                return None

    def _require_accepted(self) -> None:
        if not self.wanted.wait or self.outcome == "pending":
            return
        doubted = any(one.opinion is Opinion.REJECT for one in self.recomputed.values())
        if self.outcome in GOOD and not doubted:
            return
        raise AnswerRejected(
            "Your own model gives another answer"
            if self.outcome in GOOD
            else "The verifiers did not accept the answer",
            self.outcome,
            "Do not rely on what was sent of it. Once its lag is over it is paid, unless a case stands. Ask again.",
            FailureCost("unknown", self.tasks),
            outcome=self.outcome,
            cost_units=str(self.cost),
            advice=self.advice,
            own_check=self.own_check,
        )


class TabShapes(ReplyShapes):
    """The same objects, with costs in the asset and cached tokens as OpenAI shows them."""

    def __init__(self, completion: TabCompletion, base: str) -> None:
        super().__init__(completion, base)
        self._tabs = completion

    def troth(self) -> dict[str, Any]:
        """Which orders, what they cost, how they are checked, where the receipt is."""
        found = super().troth()
        del found["cost_wei"]
        return found | {
            "cost_units": str(self._tabs.cost),
            "asset": self._tabs.asset.symbol,
            "advice": self._tabs.advice,
            "own_check": self._tabs.own_check,
        }

    def _usage(self) -> dict[str, Any]:
        completion, asset = self._tabs, self._tabs.asset
        usage = super()._usage()
        usage |= {"cost": whole(completion.cost, asset.decimals), "cost_units": str(completion.cost)}
        usage["prompt_tokens_details"] = {"cached_tokens": completion.cached}
        if not asset.is_coin:
            del usage["cost_wei"]
        return usage


@dataclass(frozen=True, slots=True)
class _WaitingQuestions:
    """The questions of one completion; ``waiting``: numbers and prompts of those that no place was free for yet."""

    held: SharedSession[Running]
    completion: TabCompletion
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
            raise TooMany("All places are taken", f"{self._taken} orders are being answered", RETRY_AFTER)
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
        completion: TabCompletion,
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
        asked = completion.signed[number]
        assert isinstance(asked, PricedQuestion)
        in_place = True
        with batch.held.use() as running:
            try:
                answer = ask(running.session, prompt, batch.wish, asked.question, ending=completion.endings[number])
                async with aclosing(answer) as updates:
                    async for update in updates:
                        if isinstance(update, FinishedUpdate):
                            in_place = self._leave(batch, in_place)
                        self._tell(batch, number, update)
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
        told = completion.note(number, update)
        if isinstance(update, TextUpdate | FinishedUpdate):
            completion.hear(number, update)
        elif told is not None:
            ended = completion.ends[number]
            self._note_cost(completion, number, completion.cost_of(number))
            self._metrics.decided(str(ended.outcome), completion.cost_of(number))
            completion.hear(number, told)
        elif isinstance(update, ServedUpdate):
            # Now a refusal of the scheduler can no longer be told by the HTTP status.
            completion.heard(number)

    def _note_cost(self, completion: TabCompletion, number: int, cost: int) -> None:
        """What a question cost in the end. Where the disk does not take it, its fee counts against the day's budget:
        whoever reads is told of the answer all the same."""
        try:
            self._ledger.paid("0x" + completion.signed[number].task_id.hex(), cost)
        except ReceiptsUnreadable as error:
            _log.warning("what a question cost was not noted: %s", error)

    def _failed(self, completion: TabCompletion, number: int, error: Exception) -> None:
        orders = (completion.orders[number],) if number in completion.orders else ()
        refusal = refusal_of(error, orders)
        if refusal.troth.get("charged") is False:
            self._note_cost(completion, number, 0)
        hop = refusal.hop if isinstance(refusal, HopFailed) else "wallet"
        self._metrics.failures.labels(hop).inc()
        named = ", ".join(one[:12] for one in orders) or "no order was made"
        _log.warning("the question failed (%s): %s: %s", named, refusal.code, what_happened(error))
        completion.hear(number, refusal)
