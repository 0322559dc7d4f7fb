"""Choosing tokens with public noise, and checking every one of them afterwards.

A token maximises logit + temperature x Gumbel noise over the nucleus (Gumbel-max: a sample of the softmax at that
temperature). The noise of a position comes from Philox 4x64 (Salmon et al. 2011) under the task's public seed, so a
verifier with its own logits can tell for each token by how much it lost: its margin, in logits whatever the
temperature. Hidden states cannot show forged text; margins can.

Where a request transforms logits (`transforms`), all of this is over the transformed row, and a token that its grammar
forbids has an infinite margin: the mask follows from the tokens before it, so that no honest node ever takes one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from troth.protocol.errors import InvalidTokens
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.masks import RowRule, text_rules
from troth.protocol.request import Request
from troth.protocol.types import Hash32, to_hash32

MARGIN_CLIP = 2.0
"""Largest margin that one token counts, in logits: one token cannot decide a whole text, but a window it can."""
WINDOW = 32
"""Tokens summed at a time; the score is the worst window's sum over 32, also where a text is shorter, so that a text
of any length may lose the same few logits."""
NUCLEUS_SLACK = 0.02
"""Probability mass by which inferencer and verifier may disagree on where the nucleus ends. Without it the last token
of an honest nucleus would count as forged now and then."""
EDGE_LOGITS = 0.5
"""How far apart two honest rows may move the nucleus' end. Beyond, a token loses all that it lost: noise as large as
that is seen at the second look, and a text at another temperature would lose little by what any noise could do."""
END_MARGIN = 0.5
"""Largest margin of an end token: stopping early is a single token's lie, so it gets no window to hide in."""

KEPT_ROWS = 32
"""Positions whose noise is kept: as many as a verifier has logits of at a time."""

NOISE_TAG = keccak256(b"troth/noise/1")
"""Separates the seed of the noise from every other hash of the same values."""

Logits = NDArray[np.float32] | NDArray[np.float64]
Finish = Literal["stop", "length"]


def noise_seed(order: Hash32, beta: Hash32) -> Hash32:
    """Seed of the public token noise, from the VRF output of the last segment."""
    return Hash32(abi_keccak(["bytes32", "bytes32", "bytes32"], [NOISE_TAG, to_hash32(order), to_hash32(beta)]))


@dataclass(frozen=True, slots=True)
class Sampling:
    """``temperature`` 0 (greedy) to 2, ``top_p`` above 0 to 1."""

    temperature: float
    top_p: float

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 2 or not 0 < self.top_p <= 1:
            raise InvalidTokens("Temperature is 0 to 2 and top_p above 0 to 1", self, "Correct the request.")

    @classmethod
    def of(cls, request: Request) -> Sampling:
        """The sampling that a request asks for."""
        return cls(request.temperature_millionths / 1_000_000, request.top_p_millionths / 1_000_000)


def noise(seed: Hash32, position: int, vocabulary: int) -> NDArray[np.float64]:
    """Gumbel noise of one position, shape (vocabulary,).

    ``position`` is the trace row whose logits choose the token. Key: the seed's first 16 bytes; counter words 1 to 3:
    the position and the last 16 bytes, all little-endian uint64; word 0 counts. u = (raw >> 12 + 1/2) / 2**52 is exact
    in float64 and never 0 or 1. The array is read-only: the last ones are kept, since a verifier needs each for the
    inferencer's token, for its own choice, and for what that one loses.
    """
    if len(seed) != 32 or not 0 <= position < 1 << 32 or vocabulary < 1:
        raise InvalidTokens(
            "Noise needs 32 bytes, a uint32 position, a vocabulary", (position, vocabulary), "Check them."
        )
    return _noise(bytes(seed), position, vocabulary)


@lru_cache(maxsize=KEPT_ROWS)
def _noise(seed: bytes, position: int, vocabulary: int) -> NDArray[np.float64]:
    words = np.frombuffer(seed, dtype="<u8").astype(np.uint64)
    counter = np.array([0, position, words[2], words[3]], dtype=np.uint64)
    raw = np.random.Philox(key=words[:2], counter=counter).random_raw(vocabulary)
    uniform: NDArray[np.float64] = (raw >> np.uint64(12)).astype(np.float64)
    uniform += 0.5
    uniform *= 2.0**-52
    np.log(uniform, out=uniform)
    np.negative(uniform, out=uniform)
    np.log(uniform, out=uniform)
    np.negative(uniform, out=uniform)
    uniform.flags.writeable = False
    return uniform


def choose(logits: Logits, sampling: Sampling, gumbel: NDArray[np.float64] | None, rule: RowRule | None = None) -> int:
    """The token: argmax of logits + temperature x noise over the nucleus, the lowest id among equals.

    ``gumbel`` may be None at temperature 0; ``rule`` transforms the row first. Raises InvalidTokens unless logits are
    finite and of one dimension.
    """
    _require_logits(logits)
    if rule is not None:
        index = choose(rule.kept(rule.apply(logits)), sampling, None if gumbel is None else rule.kept(gumbel))
        return index if rule.allowed is None else int(rule.allowed[index])
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    scores = _scores(logits, sampling, gumbel)
    if sampling.top_p == 1:
        return int(np.argmax(scores))
    likely, mass = _ranked(logits, sampling.temperature, sampling.top_p)
    nucleus = np.sort(likely[: _reach(mass, sampling.top_p)])
    return int(nucleus[np.argmax(scores[nucleus])])


def margin(
    logits: Logits,
    token: int,
    sampling: Sampling,
    gumbel: NDArray[np.float64] | None,
    rule: RowRule | None = None,
) -> float:
    """By how many logits ``token`` lost, from 0 (the argmax) to MARGIN_CLIP.

    At the nucleus' end a rounding can decide whether a token is in it, or whether its rivals are. So what counts there
    is how far logits would have to be apart for the token to be chosen: else a client, by a bias and a small ``top_p``,
    could let honest noise of a millionth of a logit look like a forged token.
    Infinite for a token that ``rule`` forbids; else in logits of the model, however the rule stretched them.
    """
    _require_logits(logits)
    if not 0 <= token < len(logits):
        raise InvalidTokens(f"A token id is below the vocabulary of {len(logits)}", token, "Check the tokenizer.")
    if rule is not None:
        place = rule.place(token)
        if place is None:
            return math.inf
        kept = None if gumbel is None else rule.kept(gumbel)
        lost = margin(rule.kept(rule.apply(logits)), place, sampling, kept)
        return lost if lost == MARGIN_CLIP else lost / rule.stretch
    scores = _scores(logits, sampling, gumbel)
    best = float(scores.max())
    if sampling.temperature == 0 or sampling.top_p == 1:
        return min(max(best - float(scores[token]), 0.0), MARGIN_CLIP)
    likely, mass = _ranked(logits, sampling.temperature, sampling.top_p + NUCLEUS_SLACK)
    outer = likely[: _reach(mass, sampling.top_p + NUCLEUS_SLACK)]
    inner = likely[: _reach(mass, sampling.top_p - NUCLEUS_SLACK)]
    lost = min(max(float(scores[inner].max()) - float(scores[token]), 0.0), MARGIN_CLIP)
    if sampling.top_p + NUCLEUS_SLACK < 1 and token not in outer:
        lost = MARGIN_CLIP
    if not lost:
        return 0.0
    edge = _Edge(logits, scores, inner[scores[inner] > scores[token]], token, sampling)
    return edge.least(min(lost, EDGE_LOGITS), lost)


def margins(
    logits: Logits,
    tokens: Sequence[int],
    sampling: Sampling,
    rules: Sequence[RowRule] | None = None,
    *,
    seed: Hash32,
    first_position: int,
) -> NDArray[np.float64]:
    """Margins of consecutive tokens: row i of ``logits`` (tokens x vocabulary) is trace row first_position + i.

    ``rules``: what transforms each row; see `masks.TextRules.along`.
    """
    if logits.ndim != 2 or len(logits) != len(tokens):
        raise InvalidTokens("One row of logits per token", (logits.shape, len(tokens)), "Pass the generating rows.")
    found = np.empty(len(tokens))
    for index, token in enumerate(tokens):
        row = logits[index]
        gumbel = noise(seed, first_position + index, len(row)) if sampling.temperature > 0 else None
        found[index] = margin(row, token, sampling, gumbel, None if rules is None else rules[index])
    return found


def choices(
    logits: Logits,
    sampling: Sampling,
    rules: Sequence[RowRule] | None = None,
    *,
    seed: Hash32,
    first_position: int,
) -> list[int]:
    """The tokens that consecutive rows choose by themselves; row i of ``logits`` is trace row first_position + i."""
    chosen = []
    for index, row in enumerate(logits):
        gumbel = noise(seed, first_position + index, len(row)) if sampling.temperature > 0 else None
        chosen.append(choose(row, sampling, gumbel, None if rules is None else rules[index]))
    return chosen


def finish_reason(tokens: Sequence[int], request: Request) -> Finish | None:
    """Why generation ends after ``tokens``: an end token, the length limit, or None to go on."""
    if tokens and tokens[-1] in request.end_tokens:
        return "stop"
    return "length" if len(tokens) >= request.max_tokens else None


@dataclass(frozen=True, slots=True)
class TokenReport:
    """Judgement of a text. ``score`` is the worst window's margin per token, ``mean_margin`` that of the whole text;
    ``matches`` counts tokens that are the verifier's own choice, ``worst`` is the largest margin.

    ``told`` is False where the verifier's own noise is as large: a text that is not accepted is not refused either.
    ``allowed`` is False where a token is one that the request's grammar forbids; that alone refuses a text.
    """

    score: float
    cut: float
    mean_margin: float
    matches: int
    end_ok: bool
    accepted: bool
    worst: float = 0.0
    told: bool = True
    allowed: bool = True


def judge_tokens(found: NDArray[np.float64], tokens: Sequence[int], request: Request, cut: float) -> TokenReport:
    """Judge a whole text from the margins of all its tokens; ``cut`` in logits (class margin_cut / 1e6)."""
    if not len(found) or len(found) != len(tokens):
        raise InvalidTokens("One margin per generated token, at least one", (len(found), len(tokens)), "Check all.")
    sums = np.cumsum(np.concatenate([[0.0], np.minimum(found, MARGIN_CLIP)]))
    width = min(WINDOW, len(found))
    score = float(np.max(sums[width:] - sums[:-width])) / WINDOW
    end_ok = _ends_well(found, tokens, request)
    allowed = not bool(np.isinf(found).any())
    return TokenReport(
        score=score,
        cut=cut,
        mean_margin=float(sums[-1]) / len(found),
        matches=int((found == 0).sum()),
        end_ok=end_ok,
        accepted=end_ok and allowed and score <= cut,
        worst=float(min(found.max(), MARGIN_CLIP)),
        allowed=allowed,
    )


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


def _ends_well(found: NDArray[np.float64], tokens: Sequence[int], request: Request) -> bool:
    ends = set(request.end_tokens)
    if len(tokens) > request.max_tokens or any(token in ends for token in tokens[:-1]):
        return False
    if tokens[-1] in ends:
        return bool(found[-1] <= END_MARGIN)
    return len(tokens) == request.max_tokens


def _require_logits(logits: NDArray[Any]) -> None:
    if logits.ndim != 1 or not len(logits) or logits.dtype not in (np.float32, np.float64):
        raise InvalidTokens("Logits are one float row over the vocabulary", (logits.shape, str(logits.dtype)), "Check.")
    if not np.isfinite(logits).all():
        raise InvalidTokens("Logits hold NaN or infinity", logits.shape, "Check the weights and the head.")


def _scores(logits: Logits, sampling: Sampling, gumbel: NDArray[np.float64] | None) -> NDArray[np.float64]:
    if sampling.temperature == 0:
        return logits.astype(np.float64)
    if gumbel is None or gumbel.shape != logits.shape:
        shape = None if gumbel is None else gumbel.shape
        raise InvalidTokens(f"Sampling needs noise of shape {logits.shape}", shape, "Call noise for this position.")
    return logits + sampling.temperature * gumbel


def _ranked(logits: Logits, temperature: float, top_p: float) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Tokens from the likeliest on (ties by id), at least as many as have mass ``top_p``, and their running mass."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max()
    shifted /= temperature
    likelihood = np.exp(shifted, out=shifted)
    likelihood /= likelihood.sum()
    # Tokens below this probability hold less than 1 - top_p together, so the nucleus lies among the others: sort few.
    likely = np.flatnonzero(likelihood >= (1 - top_p) / len(likelihood))
    order = likely[np.argsort(-likelihood[likely], kind="stable")]
    return order, np.cumsum(likelihood[order])


class _Edge:
    """One token that another logit row might have chosen: `margin` asks how far away that row is."""

    def __init__(
        self, logits: Logits, scores: NDArray[np.float64], rivals: NDArray[np.intp], token: int, sampling: Sampling
    ) -> None:
        """``rivals`` are the tokens of the nucleus whose score is better."""
        self._values = logits.astype(np.float64)
        self._largest, self._temperature = self._values.max(), sampling.temperature
        self._own = self._values[token]
        self._rivals, self._ahead = self._values[rivals], scores[rivals] - scores[token]
        self._outer = _odds(sampling.top_p + NUCLEUS_SLACK, 1 - sampling.top_p - NUCLEUS_SLACK)
        self._inner = _odds(sampling.top_p - NUCLEUS_SLACK, 1 - sampling.top_p + NUCLEUS_SLACK)

    def _share(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.exp((values - self._largest) / self._temperature)
        return found

    def least(self, most: float, otherwise: float) -> float:
        """The least distance of any two logits' differences at which it might have been chosen.

        The noise of both is bounded by half of it: what moves is the order of tokens, and the odds of a share.
        ``otherwise`` where ``most`` is not enough.
        """
        shares, likelier = self._share(self._values), self._values > self._own + most
        if self._is_outside(shares[likelier].sum(), shares[~likelier].sum(), most):
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
        """Whether it may be in the nucleus, and no rival that surely is in it is ahead by more."""
        before = np.searchsorted(self._falling, -(self._own + distance), side="left")
        if self._is_outside(self._above[before], self._below[before], distance):
            return False
        strong = self._rivals[self._ahead > distance]
        upto, share = np.searchsorted(self._falling, distance - strong, side="right"), self._share(strong)
        # Among those that may stand before a rival is not the rival itself; where there are none, it is in any nucleus.
        odds = _odds(np.maximum(self._above[upto] - share, 0.0), self._below[upto] + share)
        return not bool(((upto <= 1) | (odds + distance / self._temperature < self._inner)).any())

    def _is_outside(self, likelier: float, rest: float, distance: float) -> bool:
        """Whether what is likelier by more than a distance is the whole nucleus."""
        odds = _odds(likelier, rest) - distance / self._temperature
        return likelier > 0 and bool(odds >= self._outer) and self._outer < math.inf


_EDGE_STEP = 1e-7
"""Logits up to which a distance is found."""


def _odds(share: Any, rest: Any) -> Any:
    """The logarithm of the odds of a share, infinite where there is no rest."""
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(share, 0.0)) - np.log(np.maximum(rest, 0.0))


def _reach(mass: NDArray[np.float64], top_p: float) -> int:
    """How many of the likeliest tokens reach ``top_p``: at least one, at most all."""
    return min(int(np.searchsorted(mass, top_p)) + 1, len(mass))
