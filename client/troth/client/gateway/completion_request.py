"""Reading POST /v1/completions: raw prompts, without a chat template."""

from __future__ import annotations

from troth.client.gateway.errors import Unsupported
from troth.client.gateway.request import (
    MOST_CHOICES,
    Defaults,
    Fields,
    GatewayRequest,
    read_check,
    read_choices,
    read_length,
    read_prompts,
    read_stops,
    read_wait,
)

DEFAULT_TOKENS = 16
"""OpenAI's own default for this endpoint."""
MOST_ALTERNATIVES = 5


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
        prompts=read_prompts(fields.get("prompt"), "prompt", MOST_CHOICES),
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
