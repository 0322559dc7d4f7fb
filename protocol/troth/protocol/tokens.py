"""Choosing tokens with public noise, and checking every one of them afterwards.

A token maximises logit + temperature x Gumbel noise over the tokens that the request leaves (Gumbel-max: a sample of
their softmax at that temperature): those that min_p leaves, of them the likeliest top_k, of them the nucleus of top_p.
All three leave a beginning of the tokens in order of likelihood. The noise of a position comes from Philox 4x64 (Salmon
et al. 2011) under the task's public seed, so a verifier with its own logits can tell for each token by how much it lost
(`margins`). Hidden states cannot show forged text; margins can.

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
from troth.protocol.masks import RowRule
from troth.protocol.public_noise import draw
from troth.protocol.request import Request
from troth.protocol.types import Hash32, to_hash32

MARGIN_CLIP = 2.0
"""Largest margin that one token counts, in logits: one token cannot decide a whole text, but a window it can."""
WINDOW = 32
"""Tokens summed at a time; the score is the worst window's sum over 32, also where a text is shorter, so that a text
of any length may lose the same few logits."""
END_MARGIN = 0.5
"""Largest margin of an end token: stopping early is a single token's lie, so it gets no window to hide in."""

KEPT_ROWS = 32
"""Positions whose noise is kept: as many as a verifier has logits of at a time."""

NOISE_TAG = keccak256(b"troth/noise/1")
"""Separates the seed of the noise from every other hash of the same values."""

Logits = NDArray[np.float32] | NDArray[np.float64]
Finish = Literal["stop", "length"]
_SURE = 1e-4
"""Logits, and probability mass, up to which a quick look is not believed."""
FEW, _LIKELY = 12, 0.01
"""Tokens whose noise is drawn one by one rather than that of a vocabulary, and the least probability of such a one."""


def noise_seed(order: Hash32, beta: Hash32) -> Hash32:
    """Seed of the public token noise, from the VRF output of the last segment."""
    return Hash32(abi_keccak(["bytes32", "bytes32", "bytes32"], [NOISE_TAG, to_hash32(order), to_hash32(beta)]))


@dataclass(frozen=True, slots=True)
class Sampling:
    """``temperature`` 0 (greedy) to 2, ``top_p`` above 0 to 1, ``top_k`` from 0 (no cut), ``min_p`` 0 (no cut) to 1.

    ``min_p`` leaves tokens that are at least so many times as likely as the likeliest one (Nguyen et al. 2024),
    ``top_k`` the likeliest of them (Fan et al. 2018; ties by id), and ``top_p`` the fewest that hold its share of the
    probability of these (Holtzman et al. 2020). That is the order of vLLM.
    """

    temperature: float
    top_p: float
    top_k: int = 0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 2 or not 0 < self.top_p <= 1:
            raise InvalidTokens("Temperature is 0 to 2 and top_p above 0 to 1", self, "Correct the request.")
        if self.top_k < 0 or not 0 <= self.min_p <= 1:
            raise InvalidTokens("top_k is 0 or above, and min_p 0 to 1", self, "Correct the request.")

    @classmethod
    def of(cls, request: Request) -> Sampling:
        """The sampling that a request asks for."""
        return cls(
            request.temperature_millionths / 1_000_000,
            request.top_p_millionths / 1_000_000,
            request.top_k,
            request.min_p_millionths / 1_000_000,
        )

    @property
    def keeps_all(self) -> bool:
        """Whether every token may be chosen."""
        return self.top_p == 1 and not self.cuts

    @property
    def cuts(self) -> bool:
        """Whether top_k or min_p may leave tokens out, before the nucleus."""
        return bool(self.top_k or self.min_p)

    @property
    def nucleus(self) -> Sampling:
        """What is left of it among tokens that top_k and min_p leave."""
        return Sampling(self.temperature, self.top_p)

    def least_logit(self, largest: float) -> np.float64:
        """The logit of a token that min_p just leaves; ``largest`` is that of the likeliest."""
        return np.float64(largest + self.temperature * math.log(self.min_p) if self.min_p else -math.inf)


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
    drawn = _gumbel(_draws(seed, position, vocabulary))
    drawn.flags.writeable = False
    return drawn


@lru_cache(maxsize=KEPT_ROWS)
def _draws(seed: bytes, position: int, vocabulary: int) -> NDArray[np.float64]:
    """What the noise is made of: (raw >> 11) / 2**53, which rises with it."""
    words = np.frombuffer(seed, dtype="<u8").astype(np.uint64)
    counter = np.array([0, position, words[2], words[3]], dtype=np.uint64)
    drawn = np.random.Generator(np.random.Philox(key=words[:2], counter=counter)).random(vocabulary)
    drawn.flags.writeable = False
    return drawn


@lru_cache(maxsize=KEPT_ROWS * 4)
def _draw(seed: bytes, position: int, token: int) -> float:
    """One of `_draws`."""
    return float((draw(seed, position, token) >> 11) * 2.0**-53)


def _gumbel(drawn: NDArray[np.float64]) -> NDArray[np.float64]:
    uniform = drawn * 2.0**52
    np.floor(uniform, out=uniform)
    uniform += 0.5
    uniform *= 2.0**-52
    np.log(uniform, out=uniform)
    np.negative(uniform, out=uniform)
    np.log(uniform, out=uniform)
    np.negative(uniform, out=uniform)
    return uniform


def choose(logits: Logits, sampling: Sampling, gumbel: NDArray[np.float64] | None, rule: RowRule | None = None) -> int:
    """The token: argmax of logits + temperature x noise over the nucleus, the lowest id among equals.

    ``gumbel`` may be None at temperature 0; ``rule`` transforms the row first. Raises InvalidTokens unless logits are
    finite and of one dimension.
    """
    require_logits(logits)
    if rule is not None:
        index = choose(rule.kept(rule.apply(logits)), sampling, None if gumbel is None else rule.kept(gumbel))
        return index if rule.allowed is None else int(rule.allowed[index])
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    if sampling.cuts:
        left = likeliest(logits, sampling)
        return int(left[choose(logits[left], sampling.nucleus, _require_noise(logits, gumbel)[left])])
    scores = noisy_scores(logits, sampling, gumbel)
    if sampling.top_p == 1:
        return int(np.argmax(scores))
    likely, mass = ranked(logits, sampling.temperature, sampling.top_p)
    nucleus = np.sort(likely[: reach(mass, sampling.top_p)])
    return int(nucleus[np.argmax(scores[nucleus])])


def likeliest(logits: Logits, sampling: Sampling) -> NDArray[np.intp]:
    """The tokens that min_p and top_k leave, rising; at least one."""
    left = np.flatnonzero(logits >= sampling.least_logit(float(logits.max())))
    if not 0 < sampling.top_k < len(left):
        return left
    values = logits[left]
    last = np.partition(values, len(values) - sampling.top_k)[len(values) - sampling.top_k]
    above, level = left[values > last], left[values == last]
    return np.sort(np.concatenate([above, level[: sampling.top_k - len(above)]]))


def choices(
    logits: Logits,
    sampling: Sampling,
    rules: Sequence[RowRule] | None = None,
    *,
    seed: Hash32,
    first_position: int,
    guesses: Sequence[int] | None = None,
) -> list[int]:
    """The tokens that consecutive rows choose by themselves; row i of ``logits`` is trace row first_position + i.

    ``guesses``: what they probably are, which saves the time to sort.
    """
    chosen = []
    for index, row in enumerate(logits):
        position, rule = first_position + index, None if rules is None else rules[index]
        if guesses is not None and surely_best(row, guesses[index], sampling, rule, seed=seed, position=position):
            chosen.append(guesses[index])
            continue
        gumbel = noise(seed, position, len(row)) if sampling.temperature > 0 else None
        chosen.append(choose(row, sampling, gumbel, rule))
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


def _ends_well(found: NDArray[np.float64], tokens: Sequence[int], request: Request) -> bool:
    ends = set(request.end_tokens)
    if len(tokens) > request.max_tokens or any(token in ends for token in tokens[:-1]):
        return False
    if tokens[-1] in ends:
        return bool(found[-1] <= END_MARGIN)
    return request.may_end_early or len(tokens) == request.max_tokens


def require_logits(logits: NDArray[Any]) -> None:
    """Raise InvalidTokens unless these are one row of finite logits."""
    if logits.ndim != 1 or not len(logits) or logits.dtype not in (np.float32, np.float64):
        raise InvalidTokens("Logits are one float row over the vocabulary", (logits.shape, str(logits.dtype)), "Check.")
    if not np.isfinite(logits).all():
        raise InvalidTokens("Logits hold NaN or infinity", logits.shape, "Check the weights and the head.")


def noisy_scores(logits: Logits, sampling: Sampling, gumbel: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Logits with temperature x noise: what a token's choice compares."""
    if sampling.temperature == 0:
        return logits.astype(np.float64)
    scores: NDArray[np.float64] = sampling.temperature * _require_noise(logits, gumbel)
    scores += logits
    return scores


def _require_noise(logits: Logits, gumbel: NDArray[np.float64] | None) -> NDArray[np.float64]:
    if gumbel is None or gumbel.shape != logits.shape:
        shape = None if gumbel is None else gumbel.shape
        raise InvalidTokens(f"Sampling needs noise of shape {logits.shape}", shape, "Call noise for this position.")
    return gumbel


def ranked(logits: Logits, temperature: float, top_p: float) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Tokens from the likeliest on (ties by id), at least as many as have mass ``top_p``, and their running mass."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max()
    shifted /= temperature
    likelihood = np.exp(shifted, out=shifted)
    likelihood /= likelihood.sum()
    # Tokens below this probability hold less than 1 - top_p together, so the nucleus lies among the others: sort few.
    likely = np.flatnonzero(likelihood >= (1 - top_p) / len(likelihood))
    order = likely[np.argsort(-logits[likely], kind="stable")]
    return order, np.cumsum(likelihood[order])


def surely_best(
    logits: Logits,
    token: int,
    sampling: Sampling,
    rule: RowRule | None = None,
    *,
    seed: Hash32,
    position: int,
    slack: float = 0.0,
) -> bool:
    """Whether a token has the best score of those left, wherever the nucleus ends within ``slack`` of probability.

    A quick look that sorts nothing and makes noise only for tokens that may be as good: False where it is not sure.
    """
    require_logits(logits)
    place = token if rule is None else rule.place(token)
    if sampling.temperature == 0 or place is None or not 0 <= place < len(logits):
        return False
    if rule is None and not sampling.cuts and sampling.top_p < 1:
        nucleus = _Nucleus(logits, sampling, slack)
        few = nucleus.few()
        if len(few):
            drawn = np.array([_draw(bytes(seed), position, one) for one in (place, *few.tolist())])
            scores = logits[[place, *few]] + sampling.temperature * _gumbel(drawn)
            return nucleus.holds_alone(place, few[(scores[1:] >= scores[0] - _SURE) & (few != place)])
    drawn = _draws(bytes(seed), position, len(logits))
    if rule is not None:
        logits, drawn = rule.kept(rule.apply(logits)), rule.kept(drawn)
    most = sampling.temperature * float(_gumbel(drawn.max(keepdims=True))[0])
    own = float(logits[place]) + sampling.temperature * float(_gumbel(drawn[place : place + 1])[0])
    rivals = np.flatnonzero(logits >= own - most - _SURE)
    scores = logits[rivals] + sampling.temperature * _gumbel(drawn[rivals])
    rivals = rivals[(scores >= own - _SURE) & (rivals != place)]
    if sampling.cuts:
        left = likeliest(logits, sampling)
        where, rivals = np.searchsorted(left, place), np.flatnonzero(np.isin(left, rivals))
        if where == len(left) or left[where] != place:
            return False
        logits, place = logits[left], int(where)
    return not len(rivals) if sampling.top_p == 1 else _Nucleus(logits, sampling, slack).holds_alone(place, rivals)


class _Nucleus:
    """Shares of probability, and the mass at which a nucleus surely has ended, or surely has not."""

    def __init__(self, logits: Logits, sampling: Sampling, slack: float) -> None:
        self._logits = logits
        self._shares = np.subtract(logits, logits.max()).astype(np.float32, copy=False)
        self._shares /= sampling.temperature
        self._whole = float(np.exp(self._shares, out=self._shares).sum(dtype=np.float64))
        self._inner = (max(sampling.top_p - slack, 0.0) + _SURE) * self._whole
        self._outer = math.inf if sampling.top_p + slack >= 1 else (sampling.top_p + slack - _SURE) * self._whole

    def few(self) -> NDArray[np.intp]:
        """Tokens outside of which nothing is in it; none where these are more than FEW."""
        likely = np.flatnonzero(self._shares >= self._whole * _LIKELY)
        enough = len(likely) <= FEW and float(self._shares[likely].sum(dtype=np.float64)) >= self._inner
        return likely if enough else likely[:0]

    def holds_alone(self, place: int, rivals: NDArray[np.intp]) -> bool:
        """Whether a token surely is in it, and rivals surely are not."""
        # At least one token is in any nucleus: the likeliest, before which there is nothing.
        if len(rivals) and self._mass(self._logits > self._logits[rivals].max()) < self._inner:
            return False
        if self._outer == math.inf:
            return True
        return self._mass(self._logits >= self._logits[place]) - float(self._shares[place]) < self._outer

    def _mass(self, where: NDArray[np.bool_]) -> float:
        return float(self._shares[np.flatnonzero(where)].sum(dtype=np.float64))


def reach(mass: NDArray[np.float64], top_p: float) -> int:
    """How many of the likeliest tokens reach ``top_p``: at least one, at most all."""
    return min(int(np.searchsorted(mass, top_p)) + 1, len(mass))
