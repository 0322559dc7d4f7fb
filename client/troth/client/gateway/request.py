"""What a request asks for, the same for both endpoints once its fields were checked for type and bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from troth.client.choices import SamplingChoices
from troth.client.errors import ConfigurationError
from troth.client.gateway.errors import InvalidParameter, Unsupported
from troth.client.orders.wishes import CheckWish
from troth.client.template import Message
from troth.protocol.request import TOKENS_LIMIT


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
        return InvalidParameter(f"'{name}' should be {wanted}", shown, "Correct it.", param=self.param(name))


def read_text(value: object, param: str) -> str:
    """A text without lone surrogates; InvalidParameter otherwise."""
    if not isinstance(value, str):
        raise InvalidParameter(f"'{param}' should be text", kind_of(value), "Correct it.", param=param)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidParameter("This is no valid Unicode", param, "Encode it as UTF-8.", param=param) from error
    return value


def kind_of(value: object) -> str:
    """What a value is, without the value: it may be somebody's question."""
    names = {type(None): "null", bool: "true or false", str: "text", list: "a list", dict: "an object"}
    return "nothing" if value is None else names.get(type(value), "a number")


Prompt = str | tuple[int, ...] | Sequence[Message]
"""Raw text, raw tokens, or a conversation."""

MOST_CHOICES = 8
MOST_STOPS = 4
LONGEST_STOP = 256
MOST_ALTERNATIVES = 20


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """A request that was read and found possible.

    Args:
        kind: which endpoint was asked.
        prompts: each is answered `count` times; one only for a chat.
        logprobs: alternatives per token, -1 for no log-probabilities at all.
        wait: whether the end of the answer is held until the chain has decided.
        check: how it is checked, as in --check; empty: as the gateway was told.
    """

    kind: Literal["chat", "text"]
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
    return SamplingChoices(max_tokens, round(temperature * 1_000_000), max(round(top_p * 1_000_000), 1))


def read_length(fields: Fields, names: Sequence[str], default: int) -> int:
    """The first of several names for the same limit that is given."""
    for name in names:
        if fields.get(name) is not None:
            return fields.whole(name, 1, TOKENS_LIMIT, default)
    return default


def read_stops(fields: Fields) -> tuple[str, ...]:
    """A text, or a list of up to four."""
    value = fields.get("stop")
    given = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(given, list) or len(given) > MOST_STOPS:
        shown = len(given) if isinstance(given, list) else "neither"
        raise InvalidParameter(
            f"'stop' should be text or at most {MOST_STOPS} texts", shown, "Correct it.", param="stop"
        )
    stops = [read_text(one, "stop") for one in given]
    if not all(0 < len(one) <= LONGEST_STOP for one in stops):
        wanted = f"A stop has 1 to {LONGEST_STOP} characters"
        raise InvalidParameter(wanted, max(map(len, stops)), "Correct it.", param="stop")
    return tuple(dict.fromkeys(stops))


def read_wait(fields: Fields, default: bool) -> bool:
    """`troth.wait`: "verdict" or "answer"."""
    inner = fields.inner("troth")
    word = inner.text("wait", "verdict" if default else "answer")
    if word not in {"verdict", "answer"}:
        raise Unsupported("'troth.wait' should be verdict or answer", "", "Correct it.", param="troth.wait")
    return word == "verdict"


def read_check(fields: Fields) -> str:
    """`troth.check`: a share such as "5%", "always", "self" or "court"; empty where it is not said."""
    word = fields.inner("troth").text("check", "")
    try:
        CheckWish.read(word)
    except ConfigurationError as error:
        raise Unsupported(
            "'troth.check' should be a share, always, self or court", "", "Correct it.", param="troth.check"
        ) from error
    return word


def refuse_common(fields: Fields) -> None:
    """What both endpoints know and this network cannot do: in silence the answer would be another one."""
    for name in ("presence_penalty", "frequency_penalty"):
        fields.refuse_unless(name, [0], "verifiers can only repeat what an order can say, and it has no penalties")
    fields.refuse_unless("logit_bias", [{}], "verifiers can only repeat what an order can say, and it has no biases")
