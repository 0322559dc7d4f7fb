"""How an answer is to be chosen."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.transforms import NO_TRANSFORMS, Transforms


@dataclass(frozen=True, slots=True)
class SamplingChoices:
    """How the answer is to be chosen: temperature 0 is greedy, else Gumbel-max with the task's public noise.

    `top_p_millionths`, `top_k` and `min_p_millionths` leave the likeliest tokens, as `troth.protocol.tokens.Sampling`.
    `logprobs`: how many alternatives to each token to ask for with log probabilities, 0 to 20, or NO_LOGPROBS (-1).
    `transforms`: penalties, biases and a grammar; see `troth.protocol.transforms`.
    """

    max_tokens: int = 256
    temperature_millionths: int = 0
    top_p_millionths: int = 1_000_000
    max_cost: int | None = None
    logprobs: int = NO_LOGPROBS
    transforms: Transforms = NO_TRANSFORMS
    top_k: int = 0
    min_p_millionths: int = 0
