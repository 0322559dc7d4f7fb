"""What a node's answers of one epoch were worth: how likely its tokens are under the members' own copy of the model.

PlanetServe, section 3.4, takes 1 / PPL, which bans honest nodes that sample and rewards those that answer greedily.
Here each token's surprise is compared with what the same distribution, at the request's temperature, has on average:
its entropy. A node's texts are worth exp(-max(0, mean surprise - mean entropy)) over all of their tokens, less one
standard deviation of that mean, so that few tokens ban nobody. In the sum that tells a cheat from chance each token
counts by one over its variance: a cheat is off by about as much at every place, and only where the model is nearly sure
the noise does not drown it. That sum counts in both directions: a node that is too sure of itself does not sample as it
was asked to. Far out its texts are worth half.

A model that is only a little off, such as one with 8-bit weights and activations, is within that in every epoch. But it
is off in the same direction each time, and an honest one is not. So what epochs show adds up (a two-sided CUSUM: Page,
"Continuous inspection schemes", Biometrika 41, 1954). The paper's rule is there by name, for its figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import InvalidTokens
from troth.protocol.reputation import ONE

Z_LIMIT = 5.0
"""Standard deviations beyond which an honest node is found once in a million epochs. What is less far out adds up."""
LEAST_VARIANCE = 1.0
"""In nats², added to a token's own: a token that is all but certain would count by its rare alternatives alone."""
ALLOWED, ALARM, CERTAIN, MOST = 0.5, 16.0, 18.0, 24.0
"""Standard deviations: what each epoch takes off the evidence of those before, from where on it lowers a credit, where
it halves it, and how much is remembered at most. An honest node comes to the alarm once in millions of epochs, also if
its own kernels put it off by a seventh of a standard deviation in each of them (Siegmund's approximation)."""


@dataclass(frozen=True, slots=True)
class CreditEvidence:
    """What a node's epochs have added up to, in standard deviations: ``above`` what it should be surprised, ``below``.

    It forgets by itself: an honest node's is near 0 after a few epochs, whatever it was, and a cheat's at the limit. So
    those who missed some epochs agree soon with those who did not.
    """

    above: float = 0.0
    below: float = 0.0

    def after(self, z: float) -> CreditEvidence:
        """With one more epoch, whose sum was ``z`` standard deviations from what it should be."""
        return CreditEvidence(_added(self.above, z), _added(self.below, -z))

    @property
    def doubt(self) -> float:
        """0 up to the alarm, 1 where it is certain, and even in between: no step at which members would disagree."""
        return min(1.0, max(0.0, (max(self.above, self.below) - ALARM) / (CERTAIN - ALARM)))


def _added(sum_: float, z: float) -> float:
    return min(MOST, max(0.0, sum_ + z - ALLOWED))


NO_EVIDENCE = CreditEvidence()


class CreditRule(StrEnum):
    """How a text is rated."""

    NORMALISED = "normalised"
    PAPER = "paper"


@dataclass(frozen=True, slots=True)
class Surprises:
    """One text under the members' model, a number a token: float64, shape (tokens,).

    Attributes:
        surprise: minus the logarithm of the token's probability at the request's temperature, in nats.
        entropy: of the distribution that the token is from.
        variance: of the surprise of a token from that distribution.
        plain: the surprise at temperature 1, which perplexity is made of.
    """

    surprise: NDArray[np.float64]
    entropy: NDArray[np.float64]
    variance: NDArray[np.float64]
    plain: NDArray[np.float64]

    @classmethod
    def joined(cls, parts: Sequence[Surprises]) -> Surprises:
        """Parts of one text, or all texts of a node."""
        names = ("surprise", "entropy", "variance", "plain")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True, slots=True)
class Credit:
    """What a node's texts are worth, 0 to ``ONE``, and what it is made of; ``z`` over all tokens, ``evidence`` with
    them."""

    value: int
    mean: float
    z: float
    texts: int
    tokens: int
    evidence: CreditEvidence = NO_EVIDENCE

    @property
    def doubted(self) -> bool:
        """Whether the texts are not from the distribution that was asked for: worth half then."""
        return abs(self.z) > Z_LIMIT or self.evidence.doubt == 1


def surprises_of(logits: NDArray[np.float32], tokens: Sequence[int], temperature: float) -> Surprises:
    """The surprises of tokens under the logits before them, shape (tokens, vocabulary).

    Raises InvalidTokens for a token outside of the vocabulary, and for temperature 0: a greedy text has no entropy.
    """
    if temperature <= 0:
        raise InvalidTokens("A greedy text has no entropy", temperature, "Ask with a temperature above 0.")
    chosen = np.asarray(tokens, dtype=np.int64)
    if len(chosen) != len(logits) or (len(chosen) and not 0 <= chosen.min() <= chosen.max() < logits.shape[1]):
        raise InvalidTokens("The tokens do not fit the logits", (len(chosen), logits.shape), "Compute them again.")
    logs = _log_softmax(logits.astype(np.float64) / temperature)
    chances = np.exp(logs)
    entropy = -(chances * logs).sum(axis=1)
    variance = (chances * logs**2).sum(axis=1) - entropy**2
    rows = np.arange(len(chosen))
    plain = logs if temperature == 1 else _log_softmax(logits.astype(np.float64))
    return Surprises(-logs[rows, chosen], entropy, np.maximum(variance, 0), -plain[rows, chosen])


def worth(text: Surprises, rule: CreditRule = CreditRule.NORMALISED) -> float:
    """What one text is worth, 0 to 1; an empty one nothing."""
    if not len(text.surprise):
        return 0.0
    if rule is CreditRule.PAPER:
        return math.exp(-float(text.plain.mean()))
    return math.exp(-max(0.0, float(text.surprise.mean() - text.entropy.mean())))


def pooled_worth(texts: Sequence[Surprises]) -> float:
    """What all texts of a node are worth together, 0 to 1, less one standard deviation; empty ones nothing."""
    together, written = Surprises.joined(texts), sum(len(text.surprise) > 0 for text in texts)
    if not written:
        return 0.0
    excess = float((together.surprise - together.entropy).sum()) - math.sqrt(float(together.variance.sum()))
    return math.exp(-max(0.0, excess / len(together.surprise))) * written / len(texts)


def pooled_z(texts: Sequence[Surprises]) -> float:
    """How far all surprises together are from what they should be, in standard deviations; 0 where nothing varies.

    Each token counts by one over its own variance, with ``LEAST_VARIANCE`` in it.
    """
    together = Surprises.joined(texts)
    weight = 1 / (together.variance + LEAST_VARIANCE)
    spread = math.sqrt(float((weight**2 * together.variance).sum()))
    return float((weight * (together.surprise - together.entropy)).sum()) / spread if spread else 0.0


def credit_of(
    texts: Sequence[Surprises], rule: CreditRule = CreditRule.NORMALISED, before: CreditEvidence = NO_EVIDENCE
) -> Credit:
    """The credit of a node that wrote these texts, with the evidence ``before`` them; raises InvalidTokens for none."""
    if not texts:
        raise InvalidTokens("Without an answer there is no credit", 0, "Leave the node out.")
    z, tokens = pooled_z(texts), sum(len(text.surprise) for text in texts)
    if rule is CreditRule.PAPER:
        mean = float(np.mean([worth(text, rule) for text in texts]))
        return Credit(round(mean * ONE), mean, z, len(texts), tokens)
    mean, evidence = pooled_worth(texts), before.after(z)
    doubt = 1.0 if abs(z) > Z_LIMIT else evidence.doubt
    return Credit(round(mean * (1 - doubt / 2) * ONE), mean, z, len(texts), tokens, evidence)


def exact_credit(right: Sequence[bool], tokens: int) -> Credit:
    """The same in an exact class, where an answer is the model's to the bit or is not."""
    mean = sum(right) / len(right)
    return Credit(round(mean * ONE), mean, 0.0, len(right), tokens)


def _log_softmax(scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = scaled - scaled.max(axis=1, keepdims=True)
    logs: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs
