"""What the noise processor is told of one request, as it travels in vLLM's `SamplingParams.extra_args`.

vLLM's own seed is never used: its noise is not public, and a seeded prompt that is chunked ends its CPU engine.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

from troth.node.errors import BadInput
from troth.protocol.errors import InvalidRequest
from troth.protocol.request import Request, canonical_bytes, from_canonical_bytes
from troth.protocol.types import Hash32

KEY = "troth"
SHAKE = "troth_shake"
"""Of requests whose entering rows are changed; see `shaken_rows`."""
SEED_BITS = 56


class SamplingDraw(NamedTuple):
    """How the tokens of a request are drawn; see `troth.protocol.tokens`."""

    request: Request
    seed: Hash32


def draw_to_words(draw: SamplingDraw) -> dict[str, Any]:
    """Plain values, since they cross to another process."""
    return {KEY: [canonical_bytes(draw.request).hex(), draw.seed.hex()]}


def draw_from_words(words: dict[str, Any] | None) -> SamplingDraw | None:
    """The inverse; None for requests that choose no tokens of their own.

    Raises:
        BadInput: the words are no draw.
    """
    if not words or KEY not in words:
        return None
    try:
        request, seed = words[KEY]
        draw = SamplingDraw(from_canonical_bytes(bytes.fromhex(request)), Hash32(bytes.fromhex(seed)))
    except (TypeError, ValueError, InvalidRequest) as error:
        raise BadInput("the words are no draw", str(error), "Pass what draw_to_words made.") from error
    if len(draw.seed) != 32:
        raise BadInput("a seed has 32 bytes", len(draw.seed), "Pass the task's noise seed.")
    return draw


def shake_words(*, strongly: bool, alike: bool) -> dict[str, Any]:
    """How a request's entering rows are changed (`troth.node.engine.shaking`), by a seed that is drawn here: all of
    vLLM's processes that share a layer have to change it by the same numbers."""
    return {SHAKE: [strongly, alike, secrets.randbits(SEED_BITS)]}
