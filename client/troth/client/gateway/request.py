"""What a request asks for, the same for both endpoints once its fields were checked for type and bounds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from troth.client.choices import SamplingChoices
from troth.client.errors import ConfigurationError
from troth.client.gateway.errors import InvalidParameter, Unsupported
from troth.client.orders.wishes import CheckWish
from troth.client.template import Message
from troth.protocol.errors import InvalidGrammar
from troth.protocol.grammar import ANY_OBJECT, Grammar
from troth.protocol.request import TOKENS_LIMIT, TOP_K_LIMIT
from troth.protocol.transforms import BIASES_LIMIT, MILLION, Transforms

Prompt = str | tuple[int, ...] | Sequence[Message]
"""Raw text, raw tokens, or a conversation."""
LARGEST_TOKEN = 2**32 - 1
MOST_CHOICES = 8
MOST_STOPS = 4
LONGEST_STOP = 256
MOST_ALTERNATIVES = 20
ONE_OF_THESE = "Send one of these, or leave it out."
A_LIST = "Send a list, or leave it out."


class Fields:
    """A JSON object of a request. A field that is null counts as absent, as OpenAI's interface has it."""

    def __init__(self, values: object, place: str = "") -> None:
        if not isinstance(values, Mapping):
            raise InvalidParameter(
                "This should be a JSON object", kind_of(values), "Send an object.", param=place or None
            )
        self._values = values
        self._place = place

    def param(self, name: str) -> str:
        """The field's name as an error shows it."""
        return f"{self._place}.{name}" if self._place else name

    def get(self, name: str) -> Any:
        """The value, None if it is absent."""
        return self._values.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """A text that can be encoded."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        return read_text(value, self.param(name))

    def whole(self, name: str, least: int, most: int, default: int) -> int:
        """A whole number from `least` to `most`."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or not least <= value <= most:
            raise self._invalid(name, value, f"a whole number from {least} to {most}")
        return value

    def number(self, name: str, least: float, most: float, default: float) -> float:
        """A finite number from `least` to `most`."""
        value = self.get(name)
        if value is None:
            return default
        if type(value) not in {int, float} or not math.isfinite(value) or not least <= value <= most:
            raise self._invalid(name, value, f"a number from {least:g} to {most:g}")
        return float(value)

    def names(self) -> tuple[str, ...]:
        """Names of all fields."""
        return tuple(map(str, self._values))

    def flag(self, name: str) -> bool:
        """True or false; false if it is absent."""
        value = self.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self._invalid(name, value, "true or false")
        return value

    def inner(self, name: str) -> Fields:
        """An object in a field; empty if it is absent."""
        value = self.get(name)
        return Fields({} if value is None else value, self.param(name))

    def refuse_unless(self, name: str, harmless: Sequence[Any], why: str) -> None:
        """Raise Unsupported if the field is present and not one of the `harmless` values."""
        value = self.get(name)
        if value is None or any(type(value) is type(one) and value == one for one in harmless):
            return
        if type(value) in {int, float} and value in harmless:
            return
        raise Unsupported(f"'{name}' is not supported: {why}", "", "Leave it out.", param=self.param(name))

    def _invalid(self, name: str, value: object, wanted: str) -> InvalidParameter:
        shown = value if isinstance(value, int | float) else kind_of(value)
        return InvalidParameter(f"'{name}' should be {wanted}", shown, f"Send {wanted}.", param=self.param(name))


def read_text(value: object, param: str) -> str:
    """A text without lone surrogates; InvalidParameter otherwise."""
    if value is None:
        raise missing(param)
    if not isinstance(value, str):
        raise InvalidParameter(f"'{param}' should be text", kind_of(value), "Send text.", param=param)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidParameter("This is no valid Unicode", param, "Encode it as UTF-8.", param=param) from error
    return value


def missing(param: str) -> InvalidParameter:
    """The error for a field that a request cannot do without."""
    return InvalidParameter(f"'{param}' is missing", "", "Send it.", param=param)


def kind_of(value: object) -> str:
    """What a value is, without the value: it may be somebody's question."""
    names = {type(None): "null", bool: "true or false", str: "text", list: "a list", dict: "an object"}
    return "nothing" if value is None else names.get(type(value), "a number")


@dataclass(frozen=True, slots=True)
class ToolWish:
    """Tools in OpenAI's form, and what to do with them: ``choice`` is auto, none, required, or "=" and a name."""

    tools: tuple[Mapping[str, Any], ...] = ()
    choice: str = "none"
    parallel: bool = True

    @property
    def forced(self) -> bool:
        """Whether there has to be a call."""
        return self.choice == "required" or self.choice.startswith("=")


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """A request that was read and found possible.

    Args:
        kind: which endpoint was asked.
        prompts: each is answered `count` times; one only for a chat.
        logprobs: alternatives per token, -1 for no log-probabilities at all.
        wait: whether the end of the answer is held until the chain has decided.
        check: how it is checked, as in --check; empty: as the gateway was told.
        told: fields of the request that its answer repeats.
        tools: what may be called; a grammar that forces a call is made of it once the model is known.
    """

    kind: Literal["chat", "text", "response", "message", "embedding"]
    model: str
    prompts: tuple[Prompt, ...]
    choices: SamplingChoices
    count: int
    stops: tuple[str, ...]
    logprobs: int
    stream: bool
    include_usage: bool
    wait: bool
    echo: bool = False
    check: str = ""
    tools: ToolWish = ToolWish()
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def orders(self) -> int:
        """Orders that it takes: one for each choice."""
        return self.count * len(self.prompts)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the gateway does where a request does not say; `max_tokens` is for chats."""

    max_tokens: int = 256
    wait: bool = False


def read_choices(fields: Fields, max_tokens: int) -> SamplingChoices:
    """How to choose tokens. OpenAI's default temperature is 1."""
    temperature = fields.number("temperature", 0.0, 2.0, 1.0)
    top_p = fields.number("top_p", 0.0, 1.0, 1.0)
    # Zero means the likeliest token alone there; the least share that an order can carry means the same.
    return SamplingChoices(
        max_tokens,
        round(temperature * MILLION),
        max(round(top_p * MILLION), 1),
        transforms=Transforms(
            round(fields.number("presence_penalty", -2.0, 2.0, 0.0) * MILLION),
            round(fields.number("frequency_penalty", -2.0, 2.0, 0.0) * MILLION),
            round(fields.number("repetition_penalty", 1.0, 2.0, 1.0) * MILLION),
            _biases(fields),
            read_format(fields),
        ),
        # In vLLM's interface zero and minus one say that nothing is cut.
        top_k=max(fields.whole("top_k", -1, TOP_K_LIMIT, 0), 0),
        min_p_millionths=round(fields.number("min_p", 0.0, 1.0, 0.0) * MILLION),
    )


def _biases(fields: Fields) -> tuple[tuple[int, int], ...]:
    """`logit_bias`: from token ids as text to biases."""
    given = fields.inner("logit_bias")
    if len(given.names()) > BIASES_LIMIT:
        what = f"'logit_bias' has at most {BIASES_LIMIT} tokens"
        raise InvalidParameter(what, len(given.names()), "Leave some out.", param="logit_bias")
    found = {}
    for name in given.names():
        if not (name.isascii() and name.isdecimal() and len(name) <= 10 and int(name) < 1 << 32):
            raise InvalidParameter("'logit_bias' is by token ids", "", "Use numbers as text.", param="logit_bias")
        found[int(name)] = round(given.number(name, -100.0, 100.0, 0.0) * MILLION)
    return tuple(sorted((token, bias) for token, bias in found.items() if bias))


def read_format(fields: Fields) -> Grammar | None:
    """`response_format`: text, json_object or json_schema."""
    given = fields.inner("response_format")
    kind = given.text("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return Grammar(ANY_OBJECT)
    if kind != "json_schema":
        what = "'response_format' is text, json_object or json_schema"
        raise Unsupported(what, "", 'Send {"type": "text"}, or another of these.', param="response_format")
    return read_schema(given.inner("json_schema"), "response_format")


def read_schema(fields: Fields, param: str) -> Grammar:
    """The grammar of a `schema`; any object where it is left out."""
    schema = fields.get("schema")
    if schema is None:
        return Grammar(ANY_OBJECT)
    if not isinstance(schema, Mapping):
        raise InvalidParameter("A schema is a JSON object", kind_of(schema), "Send an object.", param=param)
    try:
        return Grammar(json.dumps(schema, ensure_ascii=False))
    except InvalidGrammar as error:
        raise Unsupported(error.what, error.value, error.remedy, param=param) from error


def read_length(fields: Fields, names: Sequence[str], default: int) -> int:
    """The first of several names for the same limit that is given."""
    for name in names:
        if fields.get(name) is not None:
            return fields.whole(name, 1, TOKENS_LIMIT, default)
    return default


def read_stops(fields: Fields, name: str = "stop") -> tuple[str, ...]:
    """A text, or a list of up to four."""
    value = fields.get(name)
    given = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(given, list) or len(given) > MOST_STOPS:
        shown = len(given) if isinstance(given, list) else "neither"
        what, remedy = f"'{name}' should be text or at most {MOST_STOPS} texts", f"Send at most {MOST_STOPS} texts."
        raise InvalidParameter(what, shown, remedy, param=name)
    stops = [read_text(one, name) for one in given]
    if not all(0 < len(one) <= LONGEST_STOP for one in stops):
        wanted, remedy = f"A stop has 1 to {LONGEST_STOP} characters", "Leave empty texts out, and shorten longer ones."
        raise InvalidParameter(wanted, max(map(len, stops)), remedy, param=name)
    return tuple(dict.fromkeys(stops))


def read_wait(fields: Fields, default: bool) -> bool:
    """`troth.wait`: "verdict" or "answer"."""
    inner = fields.inner("troth")
    word = inner.text("wait", "verdict" if default else "answer")
    if word not in {"verdict", "answer"}:
        raise Unsupported("'troth.wait' should be verdict or answer", "", ONE_OF_THESE, param="troth.wait")
    return word == "verdict"


def read_check(fields: Fields) -> str:
    """`troth.check`: a share such as "5%", "always", "self" or "court"; empty where it is not said."""
    word = fields.inner("troth").text("check", "")
    try:
        CheckWish.read(word)
    except ConfigurationError as error:
        what = "'troth.check' should be a share, always, self or court"
        remedy = 'Send "5%", "always", "self" or "court", or leave it out.'
        raise Unsupported(what, "", remedy, param="troth.check") from error
    return word


def read_prompts(value: Any, param: str, most: int) -> tuple[Prompt, ...]:
    """Raw prompts: a text, tokens, or a list of up to ``most`` of them."""
    if isinstance(value, str):
        return (read_text(value, param),)
    if not isinstance(value, list) or not value:
        what = f"'{param}' should be text, tokens, or a list of one of them"
        shown = "an empty list" if isinstance(value, list) else kind_of(value)
        raise InvalidParameter(what, shown, "Send a text.", param=param)
    if all(type(one) is int for one in value):
        return (_tokens(value, param),)
    if len(value) > most:
        raise Unsupported(
            f"At most {most} in a list: each is an order of its own", len(value), "Ask several times.", param=param
        )
    return tuple(_prompt(one, f"{param}[{number}]") for number, one in enumerate(value))


def _prompt(value: Any, place: str) -> Prompt:
    return _tokens(value, place) if isinstance(value, list) else read_text(value, place)


def _tokens(value: list[Any], place: str) -> tuple[int, ...]:
    whole = all(type(one) is int and 0 <= one <= LARGEST_TOKEN for one in value)
    if not whole or not 0 < len(value) <= TOKENS_LIMIT:
        what, remedy = f"Tokens are 1 to {TOKENS_LIMIT} whole numbers", "Send ids of the model's tokens."
        raise InvalidParameter(what, len(value), remedy, param=place)
    return tuple(value)
