"""Choosing the tokens of many rows at once, where the logits are: `troth.protocol.tokens.choose`, batched.

The protocol's rule sums and sorts a whole vocabulary in float64 and draws noise for all of it. Here all logits are read
once, for the largest of each block. Blocks whose largest is near the row's are looked into; what the others hold lies
between one and BLOCK times the likelihood of their largest. Some tens of tokens a row are ranked in float64, cut by
min_p and top_k, and noise is made for those that may be in the nucleus. It need not be known where exactly that ends:
the token is certain if it wins among all that may be in it, and surely is in it. Rows where it is not are looked at
again with the sum of all likelihoods, and what float32 leaves open even then is asked of the rule itself. So tokens are
those of the rule, and only such a row leaves the device. All of it is plain torch; no card has run it yet.

Minus infinity stands for a token that is forbidden: it has no mass and is never chosen. So what forbids or shifts
tokens (a grammar, a penalty) can change rows before, on the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from troth.node.engine.interface import TokenDraw
from troth.protocol import tokens
from troth.protocol.errors import InvalidTokens

MASS_SLACK = 1e-5
"""Above what float32 loses in a sum of likelihoods, as a share of it."""
BLOCK = 64
"""Tokens whose largest logit is looked at first: most blocks hold no candidate."""
SCORE_SLACK = 1e-9
"""Far above what two logarithms in float64 may differ by, in logits at temperatures up to 2."""
SIGHT_BYTES = 32 << 20
"""Of logits that a CPU widens to float32 and looks at a time."""
FORBIDDEN = -1e30
"""The rule knows no infinity: so little has no likelihood, and no noise makes up for it."""

Words = TypeVar("Words", torch.Tensor, NDArray[np.int64])

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10


class Closeness(NamedTuple):
    """How closely rows are looked at.

    Args:
        near: tokens within so many temperatures of the largest logit are candidates.
        far: blocks whose largest logit is within so many are summed token by token.
        most: candidates of a row; a flatter one is not decided.
        whole: whether all likelihoods are summed.
    """

    near: float
    far: float
    most: int
    whole: bool


QUICK = Closeness(6.0, 11.5, 512, whole=False)
CLOSE = Closeness(10.0, 10.0, 4_096, whole=True)
"""Other tokens than its candidates are less likely than the likeliest by 22,000. For a row with more candidates the
rule is as fast."""


class _Cuts(NamedTuple):
    """What draws ask for, float64, shape (rows, 1): temperature, top_p, top_k (infinite for none), and by how much
    logits that min_p leaves are smaller than the largest at most, as a negative number."""

    temperature: torch.Tensor
    share: torch.Tensor
    count: torch.Tensor
    below: torch.Tensor

    @classmethod
    def of(cls, draws: Sequence[TokenDraw], device: torch.device) -> _Cuts:
        sampled = [draw.sampling for draw in draws]
        columns = [
            [one.temperature for one in sampled],
            [one.top_p for one in sampled],
            [one.top_k or math.inf for one in sampled],
            [float(one.least_logit(0.0)) for one in sampled],
        ]
        return cls(*(torch.tensor(column, dtype=torch.float64, device=device)[:, None] for column in columns))


class _Seen(NamedTuple):
    """One look at some rows, all float64 but tokens.

    Candidates are all tokens of a row whose logit reaches ``bound``, from the likeliest on and ties by id, shape
    (rows, width); behind the last one of a row are logits of minus infinity. The others have shape (rows, 1): the
    largest logit, and between what the sum of likelihoods lies where that of the largest is 1.
    """

    token: torch.Tensor
    logit: torch.Tensor
    largest: torch.Tensor
    bound: torch.Tensor
    least_mass: torch.Tensor
    most_mass: torch.Tensor


def choose_tokens(logits: torch.Tensor, draws: Sequence[TokenDraw]) -> list[int]:
    """The token of each row of (rows, vocabulary) logits.

    Raises:
        InvalidTokens: not a row for each draw, logits hold NaN or infinity, or all of a row is forbidden.
    """
    if logits.ndim != 2 or len(logits) != len(draws) or not logits.shape[1]:
        raise InvalidTokens("One row of logits for each draw", (tuple(logits.shape), len(draws)), "Check the batch.")
    made: list[int | None] = [None] * len(draws)
    greedy = [index for index, draw in enumerate(draws) if draw.sampling.temperature == 0]
    cut = [index for index, draw in enumerate(draws) if draw.sampling.temperature > 0 and not draw.sampling.keeps_all]
    # Where no token is left out there is noise for the whole vocabulary, for which numpy is the faster one on a CPU.
    warm = [index for index, draw in enumerate(draws) if draw.sampling.temperature > 0 and draw.sampling.keeps_all]
    if logits.device.type == "cpu":
        warm = []
    for chosen, choose in ((greedy, _likeliest), (cut, quick_tokens), (cut, certain_tokens), (warm, certain_tokens)):
        left = [index for index in chosen if made[index] is None]
        if left:
            rows = logits if len(left) == len(draws) else logits[torch.tensor(left, device=logits.device)]
            for index, token in zip(left, choose(rows, [draws[index] for index in left]), strict=True):
                made[index] = token
    return [
        by_the_rule(row, draw) if token is None else token for row, draw, token in zip(logits, draws, made, strict=True)
    ]


def _likeliest(logits: torch.Tensor, draws: Sequence[TokenDraw]) -> list[int | None]:
    _require_finite(logits.amax(dim=1))
    return list[int | None](logits.argmax(dim=1).tolist())


def by_the_rule(row: torch.Tensor, draw: TokenDraw) -> int:
    """One row, by the protocol itself on the host; raises InvalidTokens as `choose_tokens`."""
    _require_finite(row.amax(dim=0, keepdim=True))
    values = row.float().clamp_min(FORBIDDEN).cpu().numpy()
    sampling = draw.sampling
    gumbel = tokens.noise(draw.seed, draw.position, len(values)) if sampling.temperature > 0 else None
    return tokens.choose(values, sampling, gumbel)


def _require_finite(largest: torch.Tensor) -> None:
    # NaN is larger than any number; a row of which all is forbidden has no number.
    if not bool(torch.isfinite(largest).all()):
        raise InvalidTokens("Logits hold NaN or infinity", None, "Check the weights and the head.")


def quick_tokens(logits: torch.Tensor, draws: Sequence[TokenDraw]) -> list[int | None]:
    """Tokens of rows that leave tokens out, at a temperature, where a quick look decides; None elsewhere."""
    return _decided(logits, draws, QUICK)


def certain_tokens(logits: torch.Tensor, draws: Sequence[TokenDraw]) -> list[int | None]:
    """Tokens of rows with a temperature, where they are certain; None elsewhere."""
    if not all(draw.sampling.keeps_all for draw in draws):
        return _decided(logits, draws, CLOSE)
    found: list[int | None] = []
    for row, draw in zip(logits, draws, strict=True):
        _require_finite(row.amax(dim=0, keepdim=True))
        every = torch.arange(len(row), device=row.device)
        score = row.double() + draw.sampling.temperature * _noise(torch.zeros_like(every), every, [draw])
        found += _best(score[None], torch.ones_like(score, dtype=torch.bool)[None], every[None])
    return found


def _decided(logits: torch.Tensor, draws: Sequence[TokenDraw], look: Closeness) -> list[int | None]:
    """The tokens that a look decides.

    With a mass between two bounds, the nucleus ends between two tokens: what stands before both surely is in it, what
    stands before one of them may be.
    """
    cuts = _Cuts.of(draws, logits.device)
    # Where there is no nucleus, what top_k and min_p leave has to be seen whole.
    seen = _look(logits, cuts.temperature, torch.where(cuts.share < 1, look.near, CLOSE.near), look)
    least = seen.largest + cuts.below
    rank = torch.arange(seen.logit.shape[1], device=logits.device)
    left = (rank < cuts.count) & (seen.logit >= least) & (seen.logit > -math.inf)
    likelihood = torch.where(left, ((seen.logit - seen.largest) / cuts.temperature).exp(), 0.0)
    reached = likelihood.cumsum(1)
    held, before = reached[:, -1:], reached - likelihood
    # Whether all that min_p and top_k leave is among the candidates; the nucleus is then a share of just that.
    complete = ((seen.logit > -math.inf).sum(1, keepdim=True) >= cuts.count) | (least >= seen.bound)
    cut = (cuts.count < math.inf) | (cuts.below > -math.inf)
    least_mass = torch.where(cut, held, seen.least_mass)
    most_mass = torch.where(complete, held, seen.most_mass)
    ends = torch.where(cuts.share < 1, cuts.share, math.inf)
    most = ends * most_mass * (1 + MASS_SLACK)
    # The likeliest token is in every nucleus, however little is asked for.
    surely = left & ((before < ends * least_mass * (1 - MASS_SLACK)) | (rank == 0))
    maybe = left & ((before < most) | (rank == 0))
    at, place = torch.nonzero(maybe, as_tuple=True)
    score = torch.full_like(seen.logit, -math.inf)
    score[at, place] = seen.logit[at, place] + cuts.temperature[at, 0] * _noise(at, seen.token[at, place], draws)
    known = surely & (complete | (held >= most))
    return _best(score, known, seen.token)


def _best(score: torch.Tensor, known: torch.Tensor, token: torch.Tensor) -> list[int | None]:
    """The token of the best score in each row; None where another is as good, or it is not known to be left."""
    two, places = score.topk(min(2, score.shape[1]), dim=1)
    ahead = two[:, 0] - two[:, -1] if score.shape[1] > 1 else torch.full_like(two[:, 0], math.inf)
    clear = known.gather(1, places[:, :1])[:, 0] & (ahead > SCORE_SLACK * (1 + two[:, 0].abs()))
    best = token.gather(1, places[:, :1])[:, 0]
    return [one if sure else None for one, sure in zip(best.tolist(), clear.tolist(), strict=True)]


# --------------------------------------------------------------------------------------------------------- one look


def _look(logits: torch.Tensor, temperature: torch.Tensor, near: torch.Tensor, look: Closeness) -> _Seen:
    """One look at (rows, vocabulary) logits; ``near``: within how many temperatures of the largest are candidates."""
    rows, vocabulary = logits.shape
    apart = logits.device.type == "cpu" and logits.dtype != torch.float32
    step = max(1, SIGHT_BYTES // (4 * vocabulary)) if apart else rows
    found, parts = [], []
    for first in range(0, rows, step):
        here = slice(first, first + step)
        part, warmth = logits[here].float(), temperature[here].float()
        row, token, *told = _blocks(part, warmth, near[here].float() * warmth, look)
        found.append((row + first, token, part[row, token].double()))
        parts.append(told)
    row, token, logit = (torch.cat(column) for column in zip(*found, strict=True))
    largest, least, most = (torch.cat(column).double() for column in zip(*parts, strict=True))
    count = torch.bincount(row, minlength=rows)
    bound = (largest.float() - near.float() * temperature.float()).double()
    few = count <= look.most
    # What too many candidates have is not decided: nothing of it is looked at.
    row, token, logit = (column[few[row]] for column in (row, token, logit))
    count = torch.where(few, count, 0)
    place = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
    shape = (rows, max(int(count.max()), 1))
    tokens_of, logit_of = token.new_zeros(shape), logit.new_full(shape, -math.inf)
    tokens_of[row, place], logit_of[row, place] = token, logit
    logit_of, order = logit_of.sort(dim=1, descending=True, stable=True)
    bound = torch.where(few[:, None], bound, math.inf)
    return _Seen(tokens_of.gather(1, order), logit_of, largest, bound, least, most)


def _blocks(
    part: torch.Tensor, temperature: torch.Tensor, depth: torch.Tensor, look: Closeness
) -> tuple[torch.Tensor, ...]:
    """Rows and tokens of candidates, by row and id; and of each row the largest logit, and the bounds of its mass.

    In float32 and in one piece of memory; temperatures, and by how much candidates may be below the largest logit, have
    shape (rows, 1).
    """
    vocabulary = part.shape[1]
    size = min(BLOCK, vocabulary)
    whole = vocabulary // size * size
    tops, last = part[:, :whole].unflatten(1, (-1, size)).amax(dim=2), part[:, whole:]
    largest = tops.amax(dim=1, keepdim=True)
    if whole < vocabulary:
        largest = torch.maximum(largest, last.amax(dim=1, keepdim=True))
    _require_finite(largest)
    # Every place begins a block here, so that blocks of rows are taken without a copy of all logits.
    windows = part.reshape(-1).unfold(0, size, 1)
    near, hit = largest - depth, tops >= largest - look.far * temperature
    flat = torch.nonzero(hit.view(-1))[:, 0]
    at = flat.div(tops.shape[1], rounding_mode="floor")
    begins = flat * size + at * (vocabulary - whole)
    taken, bounds = windows.index_select(0, begins), near.index_select(0, at)
    close = torch.nonzero(tops.view(-1).index_select(0, flat) >= bounds[:, 0])[:, 0]
    reaching = taken.index_select(0, close) >= bounds.index_select(0, close)
    flat = torch.nonzero(reaching.view(-1))[:, 0]
    block = close.index_select(0, flat.div(size, rounding_mode="floor"))
    row = at.index_select(0, block)
    token = begins.index_select(0, block) - row * vocabulary + flat % size
    if whole < vocabulary:
        # The last tokens fill no block, and stand behind those of their row.
        also, beyond = torch.nonzero(last >= near, as_tuple=True)
        row, token = torch.cat([row, also]), torch.cat([token, beyond + whole])
        order = row.sort(stable=True).indices
        row, token = row[order], token[order]
    if look.whole:
        mass = _whole_likelihood(part, largest, temperature)
        return row, token, largest, mass, mass
    inside = _likelihood(taken, largest.index_select(0, at), temperature.index_select(0, at))[:, 0]
    mass = _likelihood(last, largest, temperature).index_add_(0, at, inside[:, None])
    others = _likelihood(tops.masked_fill_(hit, -math.inf), largest, temperature)
    return row, token, largest, mass + others, mass + size * others


def _likelihood(values: torch.Tensor, largest: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """The sum over each row of values where that of the largest logit is 1, in float64, shape (rows, 1)."""
    return (values - largest).div_(temperature).exp_().sum(1, keepdim=True).double()


def _whole_likelihood(part: torch.Tensor, largest: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """The same, on a CPU row by row in one place, which stays in its cache."""
    if part.device.type != "cpu":
        return _likelihood(part, largest, temperature)
    room, found = torch.empty_like(part[0]), []
    for row, high, warmth in zip(part, largest, temperature, strict=True):
        found.append(torch.sub(row, high, out=room).div_(warmth).exp_().sum())
    return torch.stack(found)[:, None].double()


# ------------------------------------------------------------------------------------------------------------ noise


def _noise(row: torch.Tensor, token: torch.Tensor, draws: Sequence[TokenDraw]) -> torch.Tensor:
    """Gumbel noise of single tokens, as `tokens.noise` has it for a whole vocabulary, up to the last bits."""
    seeds = np.array([np.frombuffer(bytes(draw.seed), dtype="<i8") for draw in draws])
    words = torch.from_numpy(seeds.astype(np.int64)).to(token.device)[row]
    position = torch.tensor([draw.position for draw in draws], device=token.device)[row]
    # numpy's generator counts before it draws, and gives four words for each count.
    needed = [token // 4 + 1, position, words[:, 2], words[:, 3], words[:, 0], words[:, 1]]
    if token.device.type == "cpu":
        # These are hundreds of operations on few numbers, of which each costs a tenth in numpy.
        plain = [one.numpy() for one in needed]
        four = [torch.from_numpy(one) for one in _philox(plain[:4], plain[4:])]
    else:
        four = _philox(needed[:4], needed[4:])
    raw = torch.stack(four, dim=1).gather(1, (token % 4)[:, None])[:, 0]
    uniform = (((raw >> 12) & (2**52 - 1)).double() + 0.5) * 2.0**-52
    return -torch.log(-torch.log(uniform))


def _philox(counter: list[Words], key: list[Words]) -> list[Words]:
    """Philox 4x64-10 (Salmon et al. 2011) in int64 words, whose sums and products wrap as unsigned ones do."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for number in range(_ROUNDS):
        if number:
            k0, k1 = k0 + _signed(_KEY_STEPS[0]), k1 + _signed(_KEY_STEPS[1])
        high0, high2 = _high(c0, _MULTIPLIERS[0]), _high(c2, _MULTIPLIERS[1])
        low0, low2 = c0 * _signed(_MULTIPLIERS[0]), c2 * _signed(_MULTIPLIERS[1])
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
    return [c0, c1, c2, c3]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _high(words: Words, factor: int) -> Words:
    """The upper 64 bits of a product of unsigned 64-bit numbers."""
    low, high = words & _LOW, (words >> 32) & _LOW
    factor_low, factor_high = factor & _LOW, factor >> 32
    lower, middle, other = low * factor_low, low * factor_high, high * factor_low
    carried = ((lower >> 32) & _LOW) + (middle & _LOW) + (other & _LOW)
    upper: Words = high * factor_high + ((middle >> 32) & _LOW) + ((other >> 32) & _LOW) + ((carried >> 32) & _LOW)
    return upper
