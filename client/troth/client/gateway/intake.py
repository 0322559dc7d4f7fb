"""From a request that was read to a completion under way: model, tokens, money, places, orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from troth.chain.errors import ChainError
from troth.chain.keystore import Key
from troth.client.direct.affinity import Affinity
from troth.client.errors import ClientError
from troth.client.gateway.catalogue import require_model
from troth.client.gateway.completion import Completion, new_identifier
from troth.client.gateway.connection import Connection, Held
from troth.client.gateway.errors import InvalidRequest, PaymentRequired
from troth.client.gateway.failures import chain_failed, refusal_before, short_of
from troth.client.gateway.ledger import Ledger, today
from troth.client.gateway.orders import Listener, Orders, Told
from troth.client.gateway.request import Prompt, Wanted
from troth.client.gateway.settling import settle
from troth.client.gateway.turn import Turn
from troth.client.language import Language
from troth.client.money import format_amount
from troth.client.ordering import Choices, SignedOrder
from troth.client.prompt import LARGEST_PROMPT
from troth.client.session import Session
from troth.client.template import Message
from troth.protocol.types import Address


@dataclass(frozen=True, slots=True)
class Limits:
    """What the wallet's owner allows: wei for one request, wei for all orders of a day (UTC). None: no limit."""

    request: int | None = None
    day: int | None = None


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
            return lambda told: completion.hear(number, told)
        turn = Turn(self._affinity, messages, completion.wanted.stops, near)

        def hear(told: Told) -> None:
            turn.hear(told)
            completion.hear(number, told)

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


def _conversation(wanted: Wanted) -> list[Message]:
    """A chat's messages; none for raw prompts, which are no conversation that could go on."""
    (prompt, *_) = wanted.prompts
    if wanted.kind != "chat" or isinstance(prompt, str):
        return []
    return [message for message in prompt if not isinstance(message, int)]


def _over(what: str, value: str, remedy: str, code: str) -> PaymentRequired:
    return PaymentRequired(what, value, remedy, code=code, troth={"charged": False, "retry_free": True})


def tokens_of(language: Language, vocabulary: int, prompt: Prompt) -> tuple[int, ...]:
    """A prompt's tokens; InvalidRequest where it is too long, or a token is none of the model's."""
    if isinstance(prompt, str):
        _require_size(len(prompt.encode()))
        return tuple(language.tokenizer.encode(prompt).ids)
    if isinstance(prompt, tuple) and all(isinstance(one, int) for one in prompt):
        tokens = tuple(one for one in prompt if isinstance(one, int))
        if any(token >= vocabulary for token in tokens):
            raise InvalidRequest(
                "A token is none of the model's", max(tokens), f"Use 0 to {vocabulary - 1}.", param="prompt"
            )
        return tokens
    messages = [message for message in prompt if not isinstance(message, int)]
    _require_size(sum(len(message["content"].encode()) for message in messages))
    return language.prompt_tokens(messages)


def _require_size(size: int) -> None:
    if size > LARGEST_PROMPT:
        raise InvalidRequest(
            "The prompt is too long",
            f"{size} bytes",
            f"Use at most {LARGEST_PROMPT} bytes.",
            code="context_length_exceeded",
        )


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


def echoed(language: Language, wanted: Wanted, prompt: Prompt, tokens: tuple[int, ...]) -> str:
    """What is shown before the answer."""
    if not wanted.echo:
        return ""
    return prompt if isinstance(prompt, str) else language.decode(list(tokens))
