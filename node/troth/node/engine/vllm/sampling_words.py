"""What the noise processor is told of one request, as it travels in vLLM's `SamplingParams.extra_args`.

vLLM's own seed is never used: its noise is not public, and a seeded prompt that is chunked ends its CPU engine.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from troth.node.errors import BadInput
from troth.protocol.tokens import Sampling
from troth.protocol.types import Hash32

KEY = "troth"


class SamplingDraw(NamedTuple):
    """How the tokens of a request are drawn; see `troth.protocol.tokens`."""

    sampling: Sampling
    seed: Hash32


def draw_to_words(draw: SamplingDraw) -> dict[str, Any]:
    """Plain values, since they cross to another process."""
    return {KEY: [draw.sampling.temperature, draw.sampling.top_p, draw.seed.hex()]}


def draw_from_words(words: dict[str, Any] | None) -> SamplingDraw | None:
    """The inverse; None for requests that choose no tokens of their own.

    Raises:
        BadInput: the words are no draw, or temperature or top_p cannot be.
    """
    if not words or KEY not in words:
        return None
    try:
        temperature, top_p, seed = words[KEY]
        draw = SamplingDraw(Sampling(float(temperature), float(top_p)), Hash32(bytes.fromhex(seed)))
    except (TypeError, ValueError) as error:
        raise BadInput("the words are no draw", str(error), "Pass what draw_to_words made.") from error
    if len(draw.seed) != 32:
        raise BadInput("a seed has 32 bytes", len(draw.seed), "Pass the task's noise seed.")
    return draw
