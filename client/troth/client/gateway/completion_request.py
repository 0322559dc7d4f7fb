"""Reading POST /v1/completions: raw prompts, without a chat template."""

from __future__ import annotations

from typing import Any

from troth.client.gateway.errors import InvalidParameter, Unsupported
from troth.client.gateway.request import (
    MOST_CHOICES,
    Defaults,
    Fields,
    GatewayRequest,
    Prompt,
    kind_of,
    read_check,
    read_choices,
    read_length,
    read_stops,
    read_text,
    read_wait,
)
from troth.protocol.request import TOKENS_LIMIT

DEFAULT_TOKENS = 16
"""OpenAI's own default for this endpoint."""
MOST_ALTERNATIVES = 5
LARGEST_TOKEN = 2**32 - 1


def read_completion(body: object, defaults: Defaults) -> GatewayRequest:
    """What is wanted. Raises InvalidParameter or Unsupported, naming the field."""
    fields = Fields(body)
    fields.refuse_unless("suffix", [""], "the model only continues")
    stream, echo = fields.flag("stream"), fields.flag("echo")
    logprobs = fields.whole("logprobs", 0, MOST_ALTERNATIVES, -1)
    if echo and logprobs >= 0:
        raise Unsupported("'echo' with 'logprobs' is not supported", "", "Leave one of them out.", param="echo")
    wanted = GatewayRequest(
        kind="text",
        model=fields.text("model"),
        prompts=_prompts(fields.get("prompt")),
        choices=read_choices(fields, read_length(fields, ("max_tokens",), DEFAULT_TOKENS)),
        count=_count(fields),
        stops=read_stops(fields),
        logprobs=logprobs,
        stream=stream,
        include_usage=stream and fields.inner("stream_options").flag("include_usage"),
        wait=read_wait(fields, defaults.wait),
        check=read_check(fields),
        echo=echo,
    )
    if wanted.orders > MOST_CHOICES:
        what = f"Prompts times 'n' are at most {MOST_CHOICES}: each choice is an order of its own"
        raise Unsupported(what, wanted.orders, "Ask several times.", param="n" if wanted.count > 1 else "prompt")
    return wanted


def _count(fields: Fields) -> int:
    fields.refuse_unless("best_of", [1], "each choice is an order of its own, and none is thrown away")
    return fields.whole("n", 1, 128, 1)


def _prompts(value: Any) -> tuple[Prompt, ...]:
    if isinstance(value, str):
        return (read_text(value, "prompt"),)
    if not isinstance(value, list) or not value:
        what = "'prompt' should be text, tokens, or a list of one of them"
        raise InvalidParameter(what, kind_of(value), "Correct it.", param="prompt")
    if all(type(one) is int for one in value):
        return (_tokens(value, "prompt"),)
    if len(value) > MOST_CHOICES:
        raise Unsupported(f"At most {MOST_CHOICES} prompts", len(value), "Ask several times.", param="prompt")
    return tuple(_prompt(one, f"prompt[{number}]") for number, one in enumerate(value))


def _prompt(value: Any, place: str) -> Prompt:
    return _tokens(value, place) if isinstance(value, list) else read_text(value, place)


def _tokens(value: list[Any], place: str) -> tuple[int, ...]:
    whole = all(type(one) is int and 0 <= one <= LARGEST_TOKEN for one in value)
    if not whole or not 0 < len(value) <= TOKENS_LIMIT:
        raise InvalidParameter(f"Tokens are 1 to {TOKENS_LIMIT} whole numbers", len(value), "Correct it.", param=place)
    return tuple(value)
