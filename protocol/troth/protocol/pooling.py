"""Margins of one inferencer summed over tasks: a small change that no single text shows adds up over many.

What a token lost is compared with what the verifier's own choice at the class's precision would have lost at the same
place, both judged by float32 logits. An honest inferencer and the verifier have the same noise, whatever the prompts
are, so the ratio of their sums goes to 1; whoever computes with less precision loses more often. Prompts that make
noise large make it large for both: nobody can be framed with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LEAST_TOKENS = 8_192
"""Tokens before a pool decides anything: margins are heavy-tailed, few of them say nothing, and a pool is asked after
every task. SmolLM2 in bfloat16, bootstrapped: 99.9 % of honest pools of this size are below 1.7, 99 % of int8's are
above 2, and 99.9 % at twice the size."""
MOST_TOKENS = 32_768
"""Tokens that a pool looks back: whoever has changed for the better is not judged by the past for ever."""
RATIO_CUT = 2.0
FLOOR = 2e-4
"""Logits a token that both sums are raised by: where neither loses anything, a ratio must not divide by zero."""


@dataclass(frozen=True, slots=True)
class MarginSums:
    """Sums of clipped margins in logits: of the ``claimed`` tokens and of the verifier's ``own`` choices."""

    tokens: int = 0
    claimed: float = 0.0
    own: float = 0.0

    def __add__(self, other: MarginSums) -> MarginSums:
        return MarginSums(self.tokens + other.tokens, self.claimed + other.claimed, self.own + other.own)

    @property
    def ratio(self) -> float:
        """What the claimed tokens lost over what honest noise loses; 1 for an empty pool."""
        if not self.tokens:
            return 1.0
        floor = FLOOR * self.tokens
        return (self.claimed + floor) / (self.own + floor)

    @property
    def accepted(self) -> bool:
        """Whether the pool is too small to tell, or shows no more than honest noise."""
        return self.tokens < LEAST_TOKENS or self.ratio <= RATIO_CUT


EMPTY = MarginSums()


def newest(pools: Iterable[MarginSums], most: int = MOST_TOKENS) -> MarginSums:
    """The sum of the first pools that hold no more than ``most`` tokens together; pools come newest first."""
    total = EMPTY
    for pool in pools:
        if total.tokens + pool.tokens > most:
            break
        total += pool
    return total
