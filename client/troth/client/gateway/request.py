"""What a request asks for, the same for both endpoints once it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from troth.client.choices import Choices
from troth.client.errors import ConfigurationError
from troth.client.gateway.errors import InvalidRequest, Unsupported
from troth.client.gateway.fields import Fields, read_text
from troth.client.orders.wishes import Check
from troth.client.template import Message
from troth.protocol.request import TOKENS_LIMIT

Prompt = str | tuple[int, ...] | Sequence[Message]
"""Raw text, raw tokens, or a conversation."""

MOST_CHOICES = 8
MOST_STOPS = 4
LONGEST_STOP = 256
MOST_ALTERNATIVES = 20


@dataclass(frozen=True, slots=True)
class Wanted:
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
    choices: Choices
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


def read_choices(fields: Fields, max_tokens: int) -> Choices:
    """How to choose tokens. OpenAI's default temperature is 1."""
    temperature = fields.number("temperature", 0.0, 2.0, 1.0)
    top_p = fields.number("top_p", 0.0, 1.0, 1.0)
    # Zero means the likeliest token alone there; the least share that an order can carry means the same.
    return Choices(max_tokens, round(temperature * 1_000_000), max(round(top_p * 1_000_000), 1))


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
        raise InvalidRequest(f"'stop' should be text or at most {MOST_STOPS} texts", shown, "Correct it.", param="stop")
    stops = [read_text(one, "stop") for one in given]
    if not all(0 < len(one) <= LONGEST_STOP for one in stops):
        wanted = f"A stop has 1 to {LONGEST_STOP} characters"
        raise InvalidRequest(wanted, max(map(len, stops)), "Correct it.", param="stop")
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
        Check.read(word)
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
