"""By how much every token of a text lost: its margin, in logits whatever the temperature.

A token lost what the best of the tokens left had more than it, in logits and noise. Where top_k, min_p or the nucleus
of top_p ends, a rounding can decide whether it is left, or whether its rivals are. So there are two numbers: what it
lost in the ``whole``, and the ``least`` by which logits would have to be apart for the token to be chosen. The least
counts where it is within what noise can do; else a client, by a bias and a small ``top_p``, could let honest noise of a
millionth of a logit look like a forged token. Beyond that the whole counts; else a text at another temperature would
lose little.

How far noise reaches is measured in every row by the third rules (`doubts`), and EDGE_LOGITS by older ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import InvalidTokens
from troth.protocol.masks import RowRule, text_rules
from troth.protocol.request import Request
from troth.protocol.tokens import (
    MARGIN_CLIP,
    Logits,
    Sampling,
    TokenReport,
    judge_tokens,
    likeliest,
    noise,
    noisy_scores,
    ranked,
    reach,
    require_logits,
    surely_best,
)
from troth.protocol.types import Hash32

NUCLEUS_SLACK = 0.02
"""Probability mass by which inferencer and verifier may disagree on where the nucleus ends. Without it the last token
of an honest nucleus would count as forged now and then."""
EDGE_LOGITS = 0.5
"""By the first and the second rules: how far apart two honest rows may move the nucleus' end. Beyond, a token loses all
that it lost."""
_EDGE_STEP = 1e-7
"""Logits up to which a distance is found."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What tokens lost, in logits from 0 to MARGIN_CLIP, or infinite where a token is forbidden: two arrays (tokens,).

    ``least`` is ``whole`` where no noise at the nucleus' end would help.
    """

    whole: NDArray[np.float64]
    least: NDArray[np.float64]

    def counted(self, bounds: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """What counts where noise reaches so far in each row."""
        found: NDArray[np.float64] = np.where(self.least <= bounds, self.least, self.whole)
        return found

    def doubtful(self, bound: float) -> NDArray[np.intp]:
        """Which tokens count otherwise where noise reaches further than this."""
        return np.flatnonzero((self.least < self.whole) & (self.least > bound))


def margin(
    logits: Logits,
    token: int,
    sampling: Sampling,
    gumbel: NDArray[np.float64] | None,
    rule: RowRule | None = None,
) -> float:
    """By how many logits ``token`` lost, from 0 (the argmax) to MARGIN_CLIP, by the rules before the third.

    Infinite for a token that ``rule`` forbids; else in logits of the model, however the rule stretched them.
    """
    return loss(logits, token, sampling, gumbel, rule, edge=EDGE_LOGITS)[1]


def loss(
    logits: Logits,
    token: int,
    sampling: Sampling,
    gumbel: NDArray[np.float64] | None,
    rule: RowRule | None = None,
    *,
    edge: float = MARGIN_CLIP,
) -> tuple[float, float]:
    """What ``token`` lost: in the whole, and the least that noise would have to be; the whole again where that is more
    than ``edge``. Infinite for a token that ``rule`` forbids; else in logits of the model, however the rule stretched
    them."""
    require_logits(logits)
    if not 0 <= token < len(logits):
        raise InvalidTokens(f"A token id is below the vocabulary of {len(logits)}", token, "Check the tokenizer.")
    if rule is not None:
        place = rule.place(token)
        if place is None:
            return math.inf, math.inf
        kept = None if gumbel is None else rule.kept(gumbel)
        whole, least = loss(rule.kept(rule.apply(logits)), place, sampling, kept, edge=edge)
        return whole if whole == MARGIN_CLIP else whole / rule.stretch, (
            least if least == MARGIN_CLIP else least / rule.stretch
        )
    scores = noisy_scores(logits, sampling, gumbel)
    if sampling.temperature == 0 or sampling.keeps_all:
        whole = min(max(float(scores.max()) - float(scores[token]), 0.0), MARGIN_CLIP)
        return whole, whole
    inner, outer = _left(logits, sampling)
    whole = min(max(float(scores[inner].max()) - float(scores[token]), 0.0), MARGIN_CLIP)
    if outer is not None and token not in outer:
        whole = MARGIN_CLIP
    if not whole:
        return 0.0, 0.0
    found = _Edge(logits, scores, inner[scores[inner] > scores[token]], token, sampling)
    return whole, found.least(min(whole, edge), whole)


def losses(
    logits: Logits,
    tokens: Sequence[int],
    sampling: Sampling,
    rules: Sequence[RowRule] | None = None,
    *,
    seed: Hash32,
    first_position: int,
    edge: float = MARGIN_CLIP,
) -> Losses:
    """What consecutive tokens lost: row i of ``logits`` (tokens x vocabulary) is trace row first_position + i.

    ``rules``: what transforms each row; see `masks.TextRules.along`.
    """
    if logits.ndim != 2 or len(logits) != len(tokens):
        raise InvalidTokens("One row of logits per token", (logits.shape, len(tokens)), "Pass the generating rows.")
    found = np.empty((2, len(tokens)))
    for index, token in enumerate(tokens):
        row, position, rule = logits[index], first_position + index, None if rules is None else rules[index]
        if surely_best(row, token, sampling, rule, seed=seed, position=position, slack=NUCLEUS_SLACK):
            found[:, index] = 0.0
            continue
        gumbel = noise(seed, position, len(row)) if sampling.temperature > 0 else None
        found[:, index] = loss(row, token, sampling, gumbel, rule, edge=edge)
    return Losses(*found)


def margins(
    logits: Logits,
    tokens: Sequence[int],
    sampling: Sampling,
    rules: Sequence[RowRule] | None = None,
    *,
    seed: Hash32,
    first_position: int,
) -> NDArray[np.float64]:
    """Margins of consecutive tokens by the rules before the third; see `losses`."""
    return losses(logits, tokens, sampling, rules, seed=seed, first_position=first_position, edge=EDGE_LOGITS).least


def check_tokens(
    logits: Logits,
    tokens: Sequence[int],
    request: Request,
    *,
    seed: Hash32,
    margin_cut: int,
    tokenizer: str = "",
) -> TokenReport:
    """Check a text against all its logits, tokens x vocabulary; ``margin_cut`` in millionths, as the class has it.

    ``tokenizer`` is the text of the model's tokenizer.json, which a grammar needs. For long texts call ``margins`` on
    pieces and ``judge_tokens`` once.
    """
    ruled = text_rules(request, logits.shape[1], tokenizer)
    rules = None if ruled is None else ruled.along(tokens)
    first = len(request.prompt_tokens) - 1
    found = margins(logits, tokens, Sampling.of(request), rules, seed=seed, first_position=first)
    return judge_tokens(found, tokens, request, margin_cut / 1_000_000)


def _left(logits: Logits, sampling: Sampling) -> tuple[NDArray[np.intp], NDArray[np.intp] | None]:
    """The tokens that are left where the nucleus ends NUCLEUS_SLACK earlier, and where it ends so much later; None: all
    of them."""
    left = likeliest(logits, sampling) if sampling.cuts else None
    if sampling.top_p == 1:
        assert left is not None
        return left, left
    kept = logits if left is None else logits[left]
    likely, mass = ranked(kept, sampling.temperature, sampling.top_p + NUCLEUS_SLACK)
    if left is not None:
        likely = left[likely]
    inner = likely[: reach(mass, sampling.top_p - NUCLEUS_SLACK)]
    wider = sampling.top_p + NUCLEUS_SLACK
    return inner, likely[: reach(mass, wider)] if wider < 1 else left


class _Edge:
    """One token that another logit row might have chosen: `margin` asks how far away that row is.

    What top_k, min_p and top_p leave are beginnings of the tokens in order of their logits. So whether a token is left
    follows from how many logits are larger, from the largest one, and from the odds of what is likelier.
    """

    def __init__(
        self, logits: Logits, scores: NDArray[np.float64], rivals: NDArray[np.intp], token: int, sampling: Sampling
    ) -> None:
        """``rivals`` are the tokens of the nucleus whose score is better."""
        self._values = logits.astype(np.float64)
        self._largest, self._temperature = self._values.max(), sampling.temperature
        self._own = self._values[token]
        self._rivals, self._ahead = self._values[rivals], scores[rivals] - scores[token]
        self._least = sampling.least_logit(float(self._largest))
        self._most = sampling.top_k or len(logits)
        # Without a nucleus no odds end it.
        low, high = (sampling.top_p + side * NUCLEUS_SLACK for side in (-1, 1))
        self._outer = _odds(high, 1 - high)
        self._inner = math.inf if sampling.top_p == 1 else _odds(low, 1 - low)

    def _share(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.exp((values - self._largest) / self._temperature)
        return found

    def least(self, most: float, otherwise: float) -> float:
        """The least distance of any two logits' differences at which it might have been chosen.

        The noise of both is bounded by half of it: what moves is the order of tokens, and the odds of a share.
        ``otherwise`` where ``most`` is not enough.
        """
        shares, likelier = self._share(self._values), self._values > self._own + most
        if self._is_cut(int(likelier.sum()), most) or self._is_outside(
            shares[likelier].sum(), shares[~likelier].sum(), most
        ):
            return otherwise  # most tokens of a forged text, for which nothing needs sorting
        self._falling = np.sort(-self._values)
        shares = self._share(-self._falling)
        self._above = np.concatenate([[0.0], np.cumsum(shares)])
        self._below = np.concatenate([np.cumsum(shares[::-1])[::-1], [0.0]])
        if not self._possible(most):
            return otherwise
        low, high = 0.0, most
        while high - low > _EDGE_STEP:
            middle = (low + high) / 2
            low, high = (low, middle) if self._possible(middle) else (middle, high)
        return high

    def _possible(self, distance: float) -> bool:
        """Whether it may be left, and no rival that surely is left is ahead by more."""
        before = int(np.searchsorted(self._falling, -(self._own + distance), side="left"))
        # What top_k and min_p may leave at most: the nucleus is a share of that.
        widest = self._least_or_larger(-distance, min(self._most, len(self._falling)))
        if self._is_cut(before, distance) or self._is_outside(
            self._above[before], self._rest(np.intp(before), widest), distance
        ):
            return False
        strong = self._rivals[self._ahead > distance]
        upto, share = np.searchsorted(self._falling, distance - strong, side="right"), self._share(strong)
        # Among those that may stand before a rival is not the rival itself; where there are none, it surely is left.
        odds = _odds(np.maximum(self._above[upto] - share, 0.0), self._rest(upto, self._surely_left(distance)) + share)
        inside = (self._inner == math.inf) | (odds + distance / self._temperature < self._inner)
        uncut = (upto <= self._most) & (strong - distance >= self._least)
        return not bool(((upto <= 1) | (uncut & inside)).any())

    def _surely_left(self, distance: float) -> int:
        """How many of the likeliest top_k and min_p surely leave."""
        count = len(self._falling)
        if self._most < count:
            count = int(np.searchsorted(self._falling, self._falling[self._most] - distance, side="left"))
        return self._least_or_larger(distance, count)

    def _least_or_larger(self, distance: float, most: int) -> int:
        """How many logits are beyond the least that min_p leaves by a distance or more, counted up to ``most``."""
        return min(int(np.searchsorted(self._falling, -(self._least + distance), side="right")), most)

    def _rest(self, first: NDArray[np.intp] | np.intp, end: int) -> Any:
        """The shares of logits from one place on to another."""
        if end == len(self._falling):
            return self._below[first]
        return np.maximum(self._above[end] - self._above[first], 0.0)

    def _is_cut(self, likelier: int, distance: float) -> bool:
        """Whether top_k or min_p surely leaves it out, with so many tokens that are likelier by more than a distance.

        The likeliest is always left.
        """
        return likelier >= self._most or (likelier > 0 and bool(self._own + distance < self._least))

    def _is_outside(self, likelier: float, rest: float, distance: float) -> bool:
        """Whether what is likelier by more than a distance is the whole nucleus."""
        odds = _odds(likelier, rest) - distance / self._temperature
        return likelier > 0 and bool(odds >= self._outer) and self._outer < math.inf


def _odds(share: Any, rest: Any) -> Any:
    """The logarithm of the odds of a share, infinite where there is no rest."""
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(share, 0.0)) - np.log(np.maximum(rest, 0.0))
