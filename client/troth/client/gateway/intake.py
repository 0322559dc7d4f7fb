"""From a request that was read to a completion under way: model, tokens, money, places, orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from troth.chain.errors import ChainError
from troth.chain.keystore import Key
from troth.client.choices import Choices
from troth.client.direct.affinity import Affinity
from troth.client.errors import ClientError
from troth.client.exchange import Assigned, Posted
from troth.client.gateway.catalogue import require_model
from troth.client.gateway.completion import Completion, new_identifier
from troth.client.gateway.connection import Connection, Held
from troth.client.gateway.errors import PaymentRequired
from troth.client.gateway.failures import chain_failed, refusal_before, short_of
from troth.client.gateway.ledger import Ledger, today
from troth.client.gateway.limits import Limits
from troth.client.gateway.orders import Listener, Orders, Told
from troth.client.gateway.prompts import echoed, tokens_of
from troth.client.gateway.request import Wanted
from troth.client.gateway.settling import settle
from troth.client.gateway.turn import Turn
from troth.client.money import format_amount
from troth.client.ordering import SignedOrder
from troth.client.session import Session
from troth.client.template import Message
from troth.protocol.types import Address


class Intake:
    """Takes requests in. Either all orders of a request are sent, or none."""

    def __init__(
        self, connection: Connection[Session], orders: Orders, ledger: Ledger, key: Key, limits: Limits
    ) -> None:
        self._connection = connection
        self._orders = orders
        self._ledger = ledger
        self._key = key
        self._limits = limits
        self._affinity = Affinity()

    async def start(self, wanted: Wanted) -> Completion:
        """Order what is wanted. Raises GatewayRefusal, and then nothing was sent and nothing is charged."""
        param = "messages" if wanted.kind == "chat" else "prompt"
        async with self._connection.lease() as held:
            model = require_model(held.session, wanted.model)
            self._orders.take_places(wanted.orders)
            try:
                choices = replace(wanted.choices, logprobs=wanted.logprobs, max_cost=self._limits.request)
                language, model_known = held.session.language, held.session.offer.model
                prompts = [tokens_of(language, model_known.vocabulary, prompt) for prompt in wanted.prompts]
                signed = await self._signed(held.session, prompts, choices, wanted.count)
                # From here to the start nothing is awaited, so no other request can spend the same money.
                self._require_money(held, signed)
                completion = _completion(held.session, model, wanted, prompts, signed)
                self._ledger.ordered(completion.identifier, model, signed)
            except BaseException as error:
                self._orders.free_places(wanted.orders)
                if isinstance(error, ClientError):
                    raise refusal_before(error, param) from error
                if isinstance(error, ChainError):
                    raise chain_failed(error) from error
                raise
            messages = _conversation(wanted)
            near = self._affinity.near(messages)
            for number, order in enumerate(signed):
                self._orders.start(held, order, self._listener(completion, number, messages, near), near)
            return completion

    def _listener(
        self, completion: Completion, number: int, messages: Sequence[Message], near: Address | None
    ) -> Listener:
        if not messages:
            return lambda told: _hear(completion, number, told)
        turn = Turn(self._affinity, messages, completion.wanted.stops, near)

        def hear(told: Told) -> None:
            turn.hear(told)
            _hear(completion, number, told)

        return hear

    async def _signed(
        self, session: Session, prompts: Sequence[tuple[int, ...]], choices: Choices, count: int
    ) -> list[SignedOrder]:
        return [await session.prepare_tokens(prompt, choices, self._key) for prompt in prompts for _ in range(count)]

    def _require_money(self, held: Held[Session], signed: Sequence[SignedOrder]) -> None:
        total = sum(order.fee for order in signed)
        limits = self._limits
        if limits.request is not None and total > limits.request:
            what = f"This request costs {format_amount(total)}"
            shown = f"--max-cost is {format_amount(limits.request)}"
            raise _over(what, shown, "Ask for fewer choices, or raise --max-cost.", "cost_limit_exceeded")
        free = held.session.follower.state.escrow_of(self._key.address) - self._orders.unopened(held)
        if total > free:
            what = f"The request costs {format_amount(total)}, and {format_amount(max(free, 0))} are free"
            raise short_of(what, total - free)
        self._require_budget(held.session, total)

    def _require_budget(self, session: Session, total: int) -> None:
        budget = self._limits.day
        if budget is None:
            return
        settle(self._ledger, session)
        spent = self._ledger.spent(today())
        if spent + total > budget:
            what = f"Today's budget of {format_amount(budget)} is used up"
            shown = f"{format_amount(spent)} ordered, {format_amount(total)} asked for"
            raise _over(what, shown, "Wait until midnight UTC, or raise --budget.", "budget_exceeded")


def _hear(completion: Completion, number: int, told: Told) -> None:
    if isinstance(told, Assigned | Posted):
        completion.heard(number)
    else:
        completion.hear(number, told)


def _conversation(wanted: Wanted) -> list[Message]:
    """A chat's messages; none for raw prompts, which are no conversation that could go on."""
    (prompt, *_) = wanted.prompts
    if wanted.kind != "chat" or isinstance(prompt, str):
        return []
    return [message for message in prompt if not isinstance(message, int)]


def _over(what: str, value: str, remedy: str, code: str) -> PaymentRequired:
    return PaymentRequired(what, value, remedy, code=code, troth={"charged": False, "retry_free": True})


def _completion(
    session: Session, model: str, wanted: Wanted, prompts: Sequence[tuple[int, ...]], signed: list[SignedOrder]
) -> Completion:
    shown = [
        echoed(session.language, wanted, prompt, tokens) for prompt, tokens in zip(wanted.prompts, prompts, strict=True)
    ]
    return Completion(
        identifier=new_identifier(wanted),
        model=model,
        wanted=wanted,
        signed=signed,
        language=session.language,
        prompt_tokens=sum(map(len, prompts)),
        prefixes=[prefix for prefix in shown for _ in range(wanted.count)],
    )
