"""A completion under way: the orders of its choices, their updates in one queue, and what they cost."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from troth.client.gateway.choice import Choice, Delta
from troth.client.gateway.errors import AnswerRejected, FailureCost, GatewayRefusal, HopFailed
from troth.client.gateway.ordered import Ordered, Told
from troth.client.gateway.request import GatewayRequest
from troth.client.gateway.tool_calls import CallReader
from troth.client.gateway.tools import dialect_of
from troth.client.language import Language
from troth.client.orders.updates import FinishedUpdate, SettledUpdate, TextUpdate
from troth.protocol.grammar import ITEMS_LIMIT
from troth.protocol.types import Address

_PREFIXES = {"chat": "chatcmpl-", "text": "cmpl-", "response": "resp_", "message": "msg_", "embedding": "embd-"}


def new_identifier(wanted: GatewayRequest) -> str:
    """A completion's id, in the form that clients expect; nobody can guess one."""
    return _PREFIXES[wanted.kind] + secrets.token_hex(16)


@dataclass
class Completion:
    """What a reader of the answer sees. `prefixes` holds what is echoed before each choice."""

    identifier: str
    model: str
    wanted: GatewayRequest
    signed: Sequence[Ordered]
    language: Language
    prompt_tokens: int
    prefixes: list[str]
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.choices = [Choice(self.wanted.stops, self.language.end_tokens, self._reader()) for _ in self.signed]
        self._queue: asyncio.Queue[tuple[int, Told]] = asyncio.Queue()
        self._outcomes: dict[int, SettledUpdate] = {}
        self._served: dict[int, Address] = {}
        self._unheard = set(range(len(self.signed)))
        self._begun = asyncio.Event()
        self._early: GatewayRefusal | None = None
        self._left = False
        self.endings = [asyncio.Event() for _ in self.signed]
        """Set where nobody wants more of a choice: no more of it is written, or paid."""

    def _reader(self) -> CallReader | None:
        """What finds calls in a choice's text; None where the model was shown no tools."""
        tools = self.wanted.tools
        if not tools.tools:
            return None
        return CallReader(dialect_of(self.language.chat_template), ITEMS_LIMIT if tools.parallel else 1)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Ids of the tasks, in the order of the choices."""
        return tuple("0x" + one.task_id.hex() for one in self.signed)

    @property
    def fee(self) -> int:
        """What all orders cost if they are accepted, in the asset's smallest unit."""
        return sum(one.fee for one in self.signed)

    @property
    def cost(self) -> int:
        """In the asset's smallest unit: what an order cost where that is settled, its fee where it is not."""
        decided = self._outcomes
        return sum(decided[number].cost if number in decided else one.fee for number, one in enumerate(self.signed))

    @property
    def outcome(self) -> str:
        """ "pending" while a verdict is missing, else "accepted", or the first other outcome."""
        if len(self._outcomes) < len(self.signed):
            return "pending"
        others = [one.outcome for one in self._outcomes.values() if one.outcome != "accepted"]
        return others[0] if others else "accepted"

    @property
    def served_by(self) -> Address | None:
        """The node that signed the first choice's answer, once its update came; the receipt names all nodes."""
        return self._served.get(0)

    @property
    def whole(self) -> bool:
        """Whether the reader has all that it waits for."""
        written = all(choice.reason is not None for choice in self.choices)
        return written and (not self.wanted.wait or len(self._outcomes) == len(self.signed))

    def hear(self, number: int, told: Told) -> None:
        """An order's update."""
        if isinstance(told, GatewayRefusal) and number in self._unheard and self._early is None:
            self._early = told
        self._unheard.discard(number)
        if not self._unheard or self._early is not None:
            self._begun.set()
        if not self._left:
            self._queue.put_nowait((number, told))

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
        """Nobody reads any more."""
        self._left = True
        for ending in self.endings:
            ending.set()

    async def counted(self) -> None:
        """Wait a little until it is known what was written, where a choice ended at a stop."""

    def cut(self, refusal: GatewayRefusal) -> None:
        """Nobody hears more of it than this."""
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
            case SettledUpdate():
                self._outcomes[number] = told
                self._require_accepted()
            case GatewayRefusal() if choice.reason is None or self.wanted.wait:
                raise self._of_all(told)
        return number, None

    def _require_accepted(self) -> None:
        if not self.wanted.wait or self.outcome in {"pending", "accepted"}:
            return
        raise AnswerRejected(
            "The verifiers did not accept the answer",
            self.outcome,
            "Do not rely on what was sent of it. Ask again." if not self.cost else "Ask again; see the receipt.",
            FailureCost(self.cost > 0, self.tasks),
            outcome=self.outcome,
            cost_wei=str(self.cost),
        )

    def _of_all(self, refusal: GatewayRefusal) -> GatewayRefusal:
        """One order's failure as that of the completion: its other orders go on, and may be charged."""
        if isinstance(refusal, HopFailed) and len(self.signed) > 1:
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
