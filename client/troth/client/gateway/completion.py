"""A completion under way: the questions of its choices, their updates in one queue, and what they cost."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from troth.client.gateway.choice import Choice, Delta
from troth.client.gateway.errors import AnswerRejected, FailureCost, GatewayRefusal, HopFailed
from troth.client.gateway.request import GatewayRequest
from troth.client.gateway.tool_calls import CallReader
from troth.client.gateway.tools import dialect_of
from troth.client.language import Language
from troth.client.orders.own_check import spoken
from troth.client.orders.updates import (
    EndedUpdate,
    FinishedUpdate,
    OrderOutcome,
    RecomputedUpdate,
    SentUpdate,
    SignedUpdate,
    StateUpdate,
    TextUpdate,
    Update,
)
from troth.protocol.amounts import Asset
from troth.protocol.grammar import ITEMS_LIMIT
from troth.protocol.market.signed import Opinion
from troth.protocol.types import Address, Hash32

_PREFIXES = {"chat": "chatcmpl-", "text": "cmpl-", "response": "resp_", "message": "msg_", "embedding": "embd-"}

Told = TextUpdate | FinishedUpdate | EndedUpdate | GatewayRefusal
"""What a completion is told of one of its orders."""
GOOD = {str(OrderOutcome.UNDRAWN), str(OrderOutcome.CHECKED), str(OrderOutcome.UNCLEAR)}
"""Outcomes after which an answer is paid."""
COUNTED_SECONDS = 5.0
"""How long the end of an answer that met a stop waits for its cost: a question to the scheduler, and a signature."""


def new_identifier(wanted: GatewayRequest) -> str:
    """A completion's id, in the form that clients expect; nobody can guess one."""
    return _PREFIXES[wanted.kind] + secrets.token_hex(16)


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


@dataclass(kw_only=True)
class Completion:
    """What a reader of the answer sees. `prefixes` holds what is echoed before each choice; amounts are in the
    asset's smallest unit."""

    identifier: str
    model: str
    wanted: GatewayRequest
    asked: Sequence[PricedQuestion]
    language: Language
    prompt_tokens: int
    prefixes: list[str]
    asset: Asset
    created: int = field(default_factory=lambda: int(time.time()))
    orders: dict[int, str] = field(default_factory=dict)
    signed_results: dict[int, SignedUpdate] = field(default_factory=dict)
    ends: dict[int, EndedUpdate] = field(default_factory=dict)
    recomputed: dict[int, RecomputedUpdate] = field(default_factory=dict)
    states: dict[int, NDArray[np.float32]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.choices = [Choice(self.wanted.stops, self.language.end_tokens, self._reader()) for _ in self.asked]
        self._queue: asyncio.Queue[tuple[int, Told]] = asyncio.Queue()
        self._settled: set[int] = set()
        self._served: dict[int, Address] = {}
        self._unheard = set(range(len(self.asked)))
        self._begun = asyncio.Event()
        self._early: GatewayRefusal | None = None
        self._left = False
        self._goes_on = False
        self._costed = set[int]()
        self._all_costed = asyncio.Event()
        self.endings = [asyncio.Event() for _ in self.asked]
        """Set where nobody wants more of a choice: no more of it is written, or paid."""

    def _reader(self) -> CallReader | None:
        """What finds calls in a choice's text; None where the model was shown no tools."""
        tools = self.wanted.tools
        if not tools.tools:
            return None
        return CallReader(dialect_of(self.language.chat_template), ITEMS_LIMIT if tools.parallel else 1)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The newest order of each choice; the question's id before there is one."""
        return tuple(self.orders.get(number, "0x" + one.task_id.hex()) for number, one in enumerate(self.asked))

    @property
    def fee(self) -> int:
        """The most that all choices may cost."""
        return sum(one.fee for one in self.asked)

    @property
    def cost(self) -> int:
        """By tokens once an answer is signed, before that the most that it may cost; nothing where it is not paid."""
        return sum(self.cost_of(number, one.fee) for number, one in enumerate(self.asked))

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
        if len(self.ends) < len(self.asked):
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

    @property
    def served_by(self) -> Address | None:
        """The node that signed the first choice's answer, once its update came; the receipt names all nodes."""
        return self._served.get(0)

    @property
    def whole(self) -> bool:
        """Whether the reader has all that it waits for."""
        written = all(choice.reason is not None for choice in self.choices)
        return written and (not self.wanted.wait or len(self._settled) == len(self.asked))

    def note(self, number: int, update: Update) -> None:
        """Take an update of a question, of which the reader of the answer hears nothing by itself."""
        match update:
            case SentUpdate():
                self.orders[number] = "0x" + update.order.hex()
            case SignedUpdate():
                self.signed_results[number] = update
            case StateUpdate() if update.state is not None:
                self.states[number] = update.state
            case RecomputedUpdate():
                self.recomputed[number] = update
            case EndedUpdate():
                self.ends[number] = update
            case _:
                return

    def hear(self, number: int, told: Told) -> None:
        """An order's update; what it costs is known once it is signed, or has failed."""
        if isinstance(told, GatewayRefusal) and number in self._unheard and self._early is None:
            self._early = told
        self._unheard.discard(number)
        if not self._unheard or self._early is not None:
            self._begun.set()
        if not self._left:
            self._queue.put_nowait((number, told))
        if number in self.signed_results or number in self.ends or isinstance(told, GatewayRefusal):
            self._costed.add(number)
        if len(self._costed) == len(self.asked):
            self._all_costed.set()

    def heard(self, number: int) -> None:
        """An order's first word, of which the reader need not know more."""
        self._unheard.discard(number)
        if not self._unheard:
            self._begun.set()

    @property
    def left(self) -> bool:
        """Whether nobody reads it any more."""
        return self._left

    def leave(self) -> None:
        """Nobody reads any more: no more is written, but of an answer that was cut."""
        self._left = True
        for ending in () if self._goes_on else self.endings:
            ending.set()

    async def counted(self) -> None:
        """A choice that ended at a stop costs what was written by then, which its nodes sign a moment later."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COUNTED_SECONDS):
                await self._all_costed.wait()

    def cut(self, refusal: GatewayRefusal) -> None:
        """Its reader hears no more than this; what was ordered goes on, and is had by its receipt."""
        self._goes_on = True
        unfinished = [number for number, choice in enumerate(self.choices) if choice.reason is None]
        self.hear(unfinished[0] if unfinished else 0, refusal)

    async def begin(self, seconds: float) -> None:
        """Wait a little for the scheduler's first word on each order; raises what it refuses them for."""
        try:
            async with asyncio.timeout(seconds):
                await self._begun.wait()
        except TimeoutError:
            return
        if self._early is not None:
            raise self._of_all(self._early)

    async def next(self) -> tuple[int, Delta | None]:
        """The next update's effect on its choice. Raises GatewayRefusal when an order failed or was not accepted."""
        number, told = await self._queue.get()
        choice = self.choices[number]
        match told:
            case TextUpdate():
                delta = choice.feed(told)
                if choice.reason is not None:
                    self.endings[number].set()
                return number, delta
            case FinishedUpdate():
                if told.served_by is not None:
                    self._served[number] = told.served_by
                return number, choice.finish(told)
            case EndedUpdate():
                self._settled.add(number)
                self._require_accepted()
            case GatewayRefusal() if choice.reason is None or self.wanted.wait:
                raise self._of_all(told)
        return number, None

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

    def _of_all(self, refusal: GatewayRefusal) -> GatewayRefusal:
        """One order's failure as that of the completion: its other orders go on, and may be charged."""
        if isinstance(refusal, HopFailed) and len(self.asked) > 1:
            charged = True if refusal.money.charged is True else "unknown"
            money = FailureCost(
                charged, (*refusal.money.tasks, *(one for one in self.tasks if one not in refusal.money.tasks))
            )
            return HopFailed(
                refusal.what,
                refusal.value,
                refusal.remedy,
                money,
                hop=refusal.hop,
                status=refusal.http_status,
                code=refusal.code,
            )
        return refusal
