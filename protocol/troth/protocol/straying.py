"""Whether tokens are what their node's own rows choose: the rows that it signed, through the model's head.

Elsewhere a text is judged by the verifier's rows (`margins`, `doubts`). Those differ from the node's by what all layers
round, and a client's prompt can make that large. Here nothing is between a row and its token but one product with the
head, so that whatever was typed two honest machines differ by no more than rounding that is known beforehand: the order
of a sum, and in bfloat16 that a logit is rounded. A token that strays further convicts by arithmetic, where the class
names its head (`market.token_proofs`), and refuses the answer everywhere by the fifth rules.

A text by a cheaper model, or a lenient acceptance of a draft's tokens, over honest rows strays in most of its tokens
that differ. Only who bends the rows to fit does not; the token then loses in the eyes of others as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from troth.protocol.margins import losses
from troth.protocol.masks import RowRule
from troth.protocol.tensors import Dtype
from troth.protocol.tokens import Logits, Sampling, noise, noisy_scores
from troth.protocol.types import Hash32

HEAD_STEP = 2.0**-8
"""bfloat16: the part of a logit that rounding may take, as proofs of a wrong token grant it; twice what one does."""
HEAD_SUM = 0.01
"""Logits that the order of the head's sums may move: 0.00002 were seen."""
STRAY = 0.02
"""Logits by which no honest bfloat16 token strays, once it is seen with rounded and with unrounded logits."""


@dataclass(frozen=True, slots=True)
class Straying:
    """``worst``: by how many logits a token of the text strays from its row at most, by the kinder of both heads;
    ``beyond``: whether one strays further than any honest machine's."""

    worst: float = 0.0
    beyond: bool = False

    @property
    def counts(self) -> bool:
        """Whether the task counts against its node in the evidence over many."""
        return self.worst > STRAY

    def __or__(self, other: Straying) -> Straying:
        return Straying(max(self.worst, other.worst), self.beyond or other.beyond)


FAITHFUL = Straying()


def strays(
    logits: Logits,
    tokens: Sequence[int],
    sampling: Sampling,
    rules: Sequence[RowRule] | None = None,
    *,
    dtype: Dtype,
    seed: Hash32,
    positions: Sequence[int],
) -> list[Straying]:
    """How far each token strays from its node's row; ``logits`` are what one head makes of the rows, (tokens x
    vocabulary).

    ``positions``: the trace row of each token; ``rules``: what transforms it.
    """
    found = []
    for index, (token, position) in enumerate(zip(tokens, positions, strict=True)):
        choice = _Choice(token, sampling, None if rules is None else rules[index], seed, position)
        found.append(choice.strays(logits[index], dtype))
    return found


def kinder(first: Straying, second: Straying) -> Straying:
    """Of what two heads say of one token: in bfloat16 the class's own, and the one that rounds nothing. Where the first
    finds nothing, nobody need ask the second."""
    return min(first, second, key=lambda one: (one.beyond, one.worst))


@dataclass(frozen=True, slots=True)
class _Choice:
    """A token, and by which rules and noise it was chosen."""

    token: int
    sampling: Sampling
    rule: RowRule | None
    seed: Hash32
    position: int

    def strays(self, logits: Logits, dtype: Dtype) -> Straying:
        """How far it is from what a row of logits chooses."""
        rules = None if self.rule is None else [self.rule]
        lost = losses(logits[None], [self.token], self.sampling, rules, seed=self.seed, first_position=self.position)
        slack = HEAD_SUM
        if dtype is Dtype.BFLOAT16 and lost.least[0] > HEAD_SUM:
            slack += 2 * HEAD_STEP * self._size(logits)
        counted = float(lost.counted(slack)[0])
        return Straying(counted, counted > slack)

    def _size(self, logits: Logits) -> float:
        """The largest logit, by size, of the token and of those that have a better score."""
        if self.rule is not None:
            return float(np.abs(logits).max())
        gumbel = noise(self.seed, self.position, len(logits)) if self.sampling.temperature > 0 else None
        scores = noisy_scores(logits, self.sampling, gumbel)
        return float(np.abs(logits[scores >= scores[self.token]]).max())
