"""From a request that was read to a completion under way: model, tokens, money, places, questions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

from troth.chain.errors import ChainError
from troth.client.choices import SamplingChoices
from troth.client.errors import ClientError
from troth.client.gateway.catalogue import require_model
from troth.client.gateway.completion import Completion, PricedQuestion, new_identifier, new_question
from troth.client.gateway.connection import Connection
from troth.client.gateway.embeddings import require_checkable, require_held
from troth.client.gateway.errors import InvalidParameter, PaymentRequired, Unsupported
from troth.client.gateway.failures import FREE, refusal_of, short_of
from troth.client.gateway.guard import SpendingLimits
from troth.client.gateway.ledger import CompletionLedger, today
from troth.client.gateway.questions import Questions
from troth.client.gateway.request import GatewayRequest, Prompt, ToolWish
from troth.client.gateway.tools import grammar_of, shown
from troth.client.language import Language
from troth.client.orders.building import most_of, require_room
from troth.client.orders.running import Running
from troth.client.orders.terms import CheckedOffer
from troth.client.orders.wishes import CheckWish, PriceLimit, Wish
from troth.client.prompt import LARGEST_PROMPT
from troth.protocol.amounts import Asset
from troth.protocol.errors import InvalidGrammar, ProtocolError
from troth.protocol.masks import compiled

_PARAMS = {"text": "prompt", "response": "input", "embedding": "input"}
"""The field that a request's prompt is in."""


def tokens_of(
    language: Language, vocabulary: int, prompt: Prompt, tools: ToolWish = ToolWish(), param: str = "prompt"
) -> tuple[int, ...]:
    """A prompt's tokens; InvalidParameter where it is too long, or a token is none of the model's."""
    if isinstance(prompt, str):
        _require_size(len(prompt.encode()), param)
        return tuple(language.tokenizer.encode(prompt).ids)
    if isinstance(prompt, tuple) and all(isinstance(one, int) for one in prompt):
        tokens = tuple(one for one in prompt if isinstance(one, int))
        if any(token >= vocabulary for token in tokens):
            raise InvalidParameter(
                "A token is none of the model's", max(tokens), f"Use 0 to {vocabulary - 1}.", param=param
            )
        return tokens
    messages = [message for message in prompt if not isinstance(message, int)]
    told, shown_tools = shown(language.chat_template, messages, tools)
    _require_size(len(json.dumps([told, shown_tools], ensure_ascii=False).encode()), param)
    return language.prompt_tokens(told, shown_tools)


def with_grammar(language: Language, vocabulary: int, wanted: GatewayRequest) -> SamplingChoices:
    """How tokens are chosen, with the grammar that forces a call; refused here if nodes would refuse it.

    Takes milliseconds. Raises Unsupported, which says why.
    """
    transforms, form = wanted.choices.transforms, "text.format" if wanted.kind == "response" else "response_format"
    param = "tools" if wanted.tools.forced else form
    outside = [token for token, _ in transforms.biases if token >= vocabulary]
    if outside:
        what = "A token is none of the model's"
        raise InvalidParameter(what, outside[0], f"Use 0 to {vocabulary - 1}.", param="logit_bias")
    try:
        asked = grammar_of(wanted.tools, language.chat_template, transforms.grammar)
        transforms = replace(transforms, grammar=asked)
        if transforms.grammar is not None:
            if not language.end_tokens:
                raise InvalidGrammar("This model has no end token, so no grammar can end", "", "Ask without one.")
            compiled(transforms.grammar, language.tokenizer_text, vocabulary, language.end_tokens)
    except InvalidGrammar as error:
        raise Unsupported(error.what, error.value or "", error.remedy, param=param) from error
    return replace(wanted.choices, transforms=transforms)


async def _choices(language: Language, vocabulary: int, wanted: GatewayRequest) -> SamplingChoices:
    """``with_grammar``; in a thread where there may be one: a plain question waits for no thread to wake."""
    if wanted.choices.transforms.grammar is None and not wanted.tools.forced:
        return with_grammar(language, vocabulary, wanted)
    return await asyncio.to_thread(with_grammar, language, vocabulary, wanted)


def _require_size(size: int, param: str) -> None:
    if size > LARGEST_PROMPT:
        raise InvalidParameter(
            "The prompt is too long",
            f"{size} bytes",
            f"Use at most {LARGEST_PROMPT} bytes.",
            code="context_length_exceeded",
            param=param,
        )


def echoed(language: Language, wanted: GatewayRequest, prompt: Prompt, tokens: tuple[int, ...]) -> str:
    """What is shown before the answer."""
    if not wanted.echo:
        return ""
    return prompt if isinstance(prompt, str) else language.decode(list(tokens))


class Intake:
    """Takes requests in; either all questions of a request are asked, or none."""

    def __init__(  # noqa: PLR0917
        self,
        connection: Connection[Running],
        questions: Questions,
        ledger: CompletionLedger,
        limits: SpendingLimits,
        check: CheckWish,
        price: PriceLimit,
    ) -> None:
        self._connection = connection
        self._questions = questions
        self._ledger = ledger
        self._limits = limits
        self._check = check
        self._price = price

    async def start(self, wanted: GatewayRequest) -> Completion:
        """Ask what is wanted. Raises GatewayRefusal, and then nothing was ordered."""
        param = _PARAMS.get(wanted.kind, "messages")
        async with self._connection.lease() as held:
            running = held.session
            places = self._questions.take_places(wanted.orders, in_turn=wanted.kind == "embedding")
            try:
                offer = await running.session.ready()
                model = require_model(offer, wanted.model)
                if wanted.kind == "embedding":
                    require_held(offer)
                language = running.session.language
                assert language is not None
                choices = await _choices(language, offer.model.vocabulary, wanted)
                wish = self._wish(replace(wanted, choices=choices), running.asset)
                prompts = self._prompts(running, offer, wanted, wish)
                completion = self._completion(running, offer, wanted, prompts, wish, model)
                self._require_money(running, completion)
                self._ledger.ordered(completion.identifier, model, completion.asked)
            except BaseException as error:
                self._questions.free_places(places)
                if isinstance(error, ClientError | ChainError | ProtocolError | TimeoutError):
                    raise refusal_of(error, (), param) from error
                raise
            asked = [prompt for prompt in prompts for _ in range(wanted.count)]
            self._questions.start(held, completion, asked, wish, places)
            return completion

    async def count(self, wanted: GatewayRequest) -> int:
        """Tokens of the prompt as it would be ordered; nothing is ordered. Raises GatewayRefusal."""
        async with self._connection.lease() as held:
            session = held.session.session
            try:
                offer = await session.ready()
                require_model(offer, wanted.model)
                assert session.language is not None
                vocabulary = offer.model.vocabulary
                told = (
                    tokens_of(session.language, vocabulary, one, wanted.tools, "messages") for one in wanted.prompts
                )
                return sum(map(len, told))
            except (ClientError, ChainError, ProtocolError, TimeoutError) as error:
                raise refusal_of(error, (), "messages") from error

    def _wish(self, wanted: GatewayRequest, asset: Asset) -> Wish:
        choices = replace(wanted.choices, logprobs=wanted.logprobs, max_cost=self._limits.request)
        check = CheckWish.read(wanted.check) if wanted.check else self._check
        state = wanted.kind == "embedding"
        if state:
            require_checkable(check.mode)
        return Wish(choices, check, self._price, state, asset)

    def _prompts(
        self, running: Running, offer: CheckedOffer, wanted: GatewayRequest, wish: Wish
    ) -> list[tuple[int, ...]]:
        language = running.session.language
        assert language is not None
        vocabulary, param = offer.model.vocabulary, _PARAMS.get(wanted.kind, "messages")
        prompts = [tokens_of(language, vocabulary, prompt, wanted.tools, param) for prompt in wanted.prompts]
        for prompt in prompts:
            require_room(prompt, wish, language.context)
        return prompts

    def _completion(  # noqa: PLR0917
        self,
        running: Running,
        offer: CheckedOffer,
        wanted: GatewayRequest,
        prompts: Sequence[tuple[int, ...]],
        wish: Wish,
        model: str,
    ) -> Completion:
        language = running.session.language
        assert language is not None
        asked = [
            PricedQuestion(new_question(), most_of(offer, wish, len(prompt)))
            for prompt in prompts
            for _ in range(wanted.count)
        ]
        shown = [echoed(language, wanted, one, tokens) for one, tokens in zip(wanted.prompts, prompts, strict=True)]
        return Completion(
            identifier=new_identifier(wanted),
            model=model,
            wanted=wanted,
            asked=asked,
            language=language,
            prompt_tokens=sum(map(len, prompts)),
            prefixes=[prefix for prefix in shown for _ in range(wanted.count)],
            asset=running.asset,
        )

    def _require_money(self, running: Running, completion: Completion) -> None:
        total, limits, asset = completion.fee, self._limits, running.asset
        if limits.request is not None and total > limits.request:
            what = f"This request may cost {asset.show(total)}"
            shown = f"--max-cost is {asset.show(limits.request)}"
            raise _over(what, shown, "Ask for fewer choices or tokens, or raise --max-cost.", "cost_limit_exceeded")
        free, tab = _free(running)
        if total > free:
            what = f"The request may cost {asset.show(total)}, and {asset.show(free)} are free"
            raise short_of(what, total - free, tab)
        if limits.day is not None:
            spent = self._ledger.spent(today())
            if spent + total > limits.day:
                what = f"Today's budget of {asset.show(limits.day)} is used up"
                shown = f"{asset.show(spent)} ordered, {asset.show(total)} asked for"
                raise _over(what, shown, "Wait until midnight UTC, or raise --budget.", "budget_exceeded")


def _free(running: Running) -> tuple[int, str]:
    """What all usable tabs together still cover, and the tab to top up."""
    session, total, first = running.session, 0, ""
    for tab_context in session.usable():
        state, book = session.state.tab_state(tab_context.identifier), session.books.record(tab_context.identifier).book
        total += max(state.balance + state.redeemed - book.authorised, 0)
        first = first or "0x" + tab_context.identifier.hex()
    return total, first


def _over(what: str, value: str, remedy: str, code: str) -> PaymentRequired:
    return PaymentRequired(what, value, remedy, code=code, troth=FREE)
