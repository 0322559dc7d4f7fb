"""Choosing the tokens of many rows at once, where the logits are: `troth.protocol.tokens.choose`, batched.

The protocol's rule sums and sorts a whole vocabulary in float64 and draws noise for all of it. Here one pass in float32
finds the largest logit and the mass of each row, a few hundred candidates are ranked in float64, and noise is made for
the tokens of the nucleus only. What float32 leaves open is looked at: where the nucleus' end is closer to `top_p` than
`MASS_SLACK`, or the best two scores closer than `SCORE_SLACK`, the rule itself is asked for that row. So tokens are
those of the rule, and only such a row leaves the device. All of it is plain torch; on CUDA it has not been run.

Minus infinity stands for a token that is forbidden: it has no mass and is never chosen. So what forbids or shifts
tokens (a grammar, a penalty) can change rows before, on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from troth.node.engine.interface import TokenDraw
from troth.protocol import tokens
from troth.protocol.errors import InvalidTokens

MASS_SLACK = 1e-5
"""Above what float32 loses in a sum over a vocabulary, as a share of it: torch's softmax on CPUs takes an exponential
that is right to 20 units in the last place, 2.4e-6."""
BLOCK = 64
"""Tokens whose largest logit is looked at first: most blocks hold no candidate."""
SCORE_SLACK = 1e-9
"""Far above what two logarithms in float64 may differ by, in logits at temperatures up to 2."""
REACH = 10.0
"""Candidates lie within so many temperatures of the largest logit: others are less likely by 22,000."""
MOST = 4_096
"""Candidates of a row; a flatter one is left to the rule, which is as fast there."""
PASS_BYTES = 4 << 20
"""Of logits that a CPU works on at a time: they stay in its cache from one operation to the next."""
SIGHT_BYTES = 32 << 20
"""Of logits, in float32, among which candidates are looked for at a time: a fixed cost is paid for so many at once."""
LARGEST_PRODUCT = 64.0
"""Of a logit with the reciprocal of a temperature: see `_scaled`."""
FORBIDDEN = -1e30
"""The rule knows no infinity: so little has no likelihood, and no noise makes up for it."""
LARGEST_NOISE = 37.0
"""Above -log(-log(u)) for the largest u, 1 - 2**-53."""

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10


class _Candidates(NamedTuple):
    """Tokens of several rows: rows, ids and logits (float64)."""

    row: torch.Tensor
    token: torch.Tensor
    logit: torch.Tensor

    def only(self, chosen: torch.Tensor) -> _Candidates:
        """Those of a mask, or in another order."""
        return _Candidates(self.row[chosen], self.token[chosen], self.logit[chosen])

    def ranked(self) -> _Candidates:
        """Row after row, each from the likeliest on, ties by id; they come row after row, by id."""
        likeliest = self.only(torch.sort(self.logit, descending=True, stable=True).indices)
        return likeliest.only(torch.sort(likeliest.row, stable=True).indices)


class _Passed(NamedTuple):
    """One look at all logits. Of each row the largest, and the sum of likelihoods where that of the largest is 1."""

    largest: torch.Tensor
    mass: torch.Tensor
    near: _Candidates


def choose_tokens(logits: torch.Tensor, draws: Sequence[TokenDraw]) -> list[int]:
    """The token of each row of (rows, vocabulary) logits.

    Raises:
        InvalidTokens: not a row for each draw, logits hold NaN or infinity, or all of a row is forbidden.
    """
    if logits.ndim != 2 or len(logits) != len(draws) or not logits.shape[1]:
        raise InvalidTokens("One row of logits for each draw", (tuple(logits.shape), len(draws)), "Check the batch.")
    made: list[int | None] = [None] * len(draws)
    greedy = [index for index, draw in enumerate(draws) if draw.sampling.temperature == 0]
    # Without a nucleus there is noise for the whole vocabulary, for which numpy is the faster one on a CPU.
    least = 1.0 if logits.device.type == "cpu" else 2.0
    warm = [index for index, draw in enumerate(draws) if draw.sampling.temperature > 0 and draw.sampling.top_p < least]
    for chosen, choose in ((greedy, _likeliest), (warm, certain_tokens)):
        if chosen:
            rows = logits if len(chosen) == len(draws) else logits[torch.tensor(chosen, device=logits.device)]
            for index, token in zip(chosen, choose(rows, [draws[index] for index in chosen]), strict=True):
                made[index] = token
    return [
        by_the_rule(row, draw) if token is None else token for row, draw, token in zip(logits, draws, made, strict=True)
    ]


def _likeliest(logits: torch.Tensor, draws: Sequence[TokenDraw]) -> list[int | None]:
    _require_finite(logits.amax(dim=1))
    return [int(token) for token in logits.argmax(dim=1)]


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


def certain_tokens(logits: torch.Tensor, draws: Sequence[TokenDraw]) -> list[int | None]:
    """Tokens of rows with a temperature, where they are certain; None elsewhere."""
    temperature = _column([draw.sampling.temperature for draw in draws], logits.device)
    share = _column([draw.sampling.top_p for draw in draws], logits.device)
    # What noise could still make the best is a candidate where there is no nucleus.
    depth = torch.where(share < 1, REACH, 2 * LARGEST_NOISE) * temperature
    passed = _look(logits, temperature, depth, torch.where(share < 1, MOST, logits.shape[1]))
    nucleus, certain = _nucleus(passed, temperature, share)
    score = nucleus.logit + temperature[nucleus.row] * _noise(nucleus, draws)
    best = _by_row(score, nucleus.row, len(draws), "amax")
    winner = score == best[nucleus.row]
    token = torch.zeros(len(draws), dtype=torch.int64, device=logits.device)
    token[nucleus.row[winner]] = nucleus.token[winner]
    second = _by_row(torch.where(winner, float("-inf"), score), nucleus.row, len(draws), "amax")
    alone = _by_row(winner.double(), nucleus.row, len(draws), "sum") == 1
    certain &= alone & (best - second > SCORE_SLACK * (1 + best.abs()))
    return [one if sure else None for one, sure in zip(token.tolist(), certain.tolist(), strict=True)]


def _column(values: Sequence[float], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, device=device)


def _look(logits: torch.Tensor, temperature: torch.Tensor, depth: torch.Tensor, most: torch.Tensor) -> _Passed:
    """One look at (rows, vocabulary) logits; `depth` and `most` say what of a row are candidates, and how many."""
    rows, vocabulary = logits.shape
    step = max(1, SIGHT_BYTES // (4 * vocabulary)) if logits.device.type == "cpu" else rows
    seen = [
        _seen(logits[here].float(), temperature[here].reciprocal().float()[:, None], depth[here], most[here])
        for here in (slice(first, first + step) for first in range(0, rows, step))
    ]
    near = [one.near._replace(row=one.near.row + number * step) for number, one in enumerate(seen)]
    joined = _Candidates(*(torch.cat(parts) for parts in zip(*near, strict=True)))
    return _Passed(torch.cat([one.largest for one in seen]), torch.cat([one.mass for one in seen]), joined)


def _seen(part: torch.Tensor, scale: torch.Tensor, depth: torch.Tensor, most: torch.Tensor) -> _Passed:
    """The same of some rows, in float32 and in one piece of memory."""
    vocabulary = part.shape[1]
    block = min(BLOCK, vocabulary)
    whole = vocabulary // block * block
    tops, last = part[:, :whole].unflatten(1, (-1, block)).amax(dim=2), part[:, whole:]
    high, likeliest = tops.max(dim=1, keepdim=True)
    begins = torch.arange(0, part.numel(), vocabulary, device=part.device)
    # Every place begins a block here, so that blocks of rows are taken without a copy of all logits.
    windows = part.reshape(-1).unfold(0, block, 1)
    top = likeliest * block + windows[begins + likeliest[:, 0] * block].argmax(dim=1, keepdim=True)
    if whole < vocabulary:
        top_last, at = last.max(dim=1, keepdim=True)
        top, high = torch.where(top_last > high, whole + at, top), torch.maximum(high, top_last)
    _require_finite(high)
    bound = high - depth.float()[:, None]
    row, token = _at_least(windows, tops, last, bound)
    few = torch.bincount(row, minlength=len(part)) <= most
    if not bool(few.all()):
        row, token = row[few[row]], token[few[row]]
    near = _Candidates(row, token, part[row, token].double())
    return _Passed(high[:, 0].double(), _mass(part, high, top, scale), near)


def _mass(part: torch.Tensor, high: torch.Tensor, top: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Sums of likelihoods where that of the largest logit, at `top`, is 1.

    A product of a logit with the reciprocal of a temperature is off by 4e-6 up to 64, and so is then a likelihood.
    Where products are larger, the largest logit is taken from all of them before.
    """
    rows, vocabulary = part.shape
    step = max(1, PASS_BYTES // (4 * vocabulary)) if part.device.type == "cpu" else rows
    large = (high.abs() * scale > LARGEST_PRODUCT)[:, 0].tolist()
    # In one place, which stays in the processor's cache.
    room = torch.empty((min(step, rows), vocabulary), dtype=torch.float32, device=part.device)
    found = []
    for first in range(0, rows, step):
        here = slice(first, first + step)
        scaled = room[: len(part[here])]
        if any(large[here]):
            torch.sub(part[here], high[here], out=scaled).mul_(scale[here])
        else:
            torch.mul(part[here], scale[here], out=scaled)
        # The likelihood of the largest is one over the mass.
        found.append(torch.softmax(scaled, 1, out=scaled).gather(1, top[here]))
    return torch.cat(found)[:, 0].double().reciprocal()


def _at_least(
    windows: torch.Tensor, tops: torch.Tensor, last: torch.Tensor, bound: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and tokens of logits that reach the bound of their row, row after row, by id within each.

    Shapes: windows (places of all rows, tokens of a block), `tops` of blocks (rows, blocks), the `last` tokens of each
    row, which fill no block.
    """
    blocks, size = tops.shape[1], windows.shape[1]
    flat = torch.nonzero((tops >= bound).view(-1))[:, 0]
    at = flat // blocks
    begin = (flat - at * blocks) * size
    taken = windows.index_select(0, at * (blocks * size + last.shape[1]) + begin)
    place = torch.nonzero((taken >= bound[at]).view(-1))[:, 0]
    found = place // size
    row, token = torch.nonzero(last >= bound, as_tuple=True)
    return torch.cat([at[found], row]), torch.cat([begin[found] + place - found * size, token + blocks * size])


def _nucleus(passed: _Passed, temperature: torch.Tensor, share: torch.Tensor) -> tuple[_Candidates, torch.Tensor]:
    """Candidates in the nucleus of their row, and of each row whether just these are."""
    near, rows = passed.near.ranked(), len(share)
    likelihood = ((near.logit - passed.largest[near.row]) / temperature[near.row]).exp() / passed.mass[near.row]
    reached, asked = _running(likelihood, near.row), share[near.row]
    before = reached - likelihood
    inside = (before < asked) | (asked >= 1)
    # The first token is in every nucleus, however little is asked for; where no token is near the end, it is clear.
    closest = torch.minimum(
        torch.where(before > likelihood * 1e-9, (before - asked).abs(), 1.0), (reached - asked).abs()
    )
    clear = _by_row(closest, near.row, rows, "amin") > MASS_SLACK
    # A nucleus whose end was not seen may go on beyond the candidates.
    whole = _by_row(reached, near.row, rows, "amax") > share + MASS_SLACK
    seen = _by_row(torch.ones_like(reached), near.row, rows, "sum") > 0
    return near.only(inside), seen & ((share >= 1) | (clear & whole))


def _running(values: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """Running sums within each row; rows stand one after the other."""
    total = values.cumsum(0)
    begins = torch.ones_like(row, dtype=torch.bool)
    begins[1:] = row[1:] != row[:-1]
    starts = torch.nonzero(begins)[:, 0]
    counts = torch.diff(torch.cat([starts, starts.new_tensor([len(row)])]))
    return total - (total[starts] - values[starts]).repeat_interleave(counts)


def _by_row(values: torch.Tensor, row: torch.Tensor, rows: int, kind: str) -> torch.Tensor:
    empty = {"amin": float("inf"), "amax": float("-inf"), "sum": 0.0}[kind]
    made = torch.full((rows,), empty, dtype=torch.float64, device=values.device)
    return made.scatter_reduce_(0, row, values, kind)


def _noise(candidates: _Candidates, draws: Sequence[TokenDraw]) -> torch.Tensor:
    """Gumbel noise of single tokens, as `tokens.noise` has it for a whole vocabulary, up to the last bits."""
    device = candidates.row.device
    seeds = np.array([np.frombuffer(bytes(draw.seed), dtype="<i8") for draw in draws])
    words = torch.from_numpy(seeds.astype(np.int64)).to(device)[candidates.row]
    position = torch.tensor([draw.position for draw in draws], device=device)[candidates.row]
    # numpy's generator counts before it draws, and gives four words for each count.
    counter = [candidates.token // 4 + 1, position, words[:, 2], words[:, 3]]
    drawn = torch.stack(_philox(counter, [words[:, 0], words[:, 1]]), dim=1)
    raw = drawn.gather(1, (candidates.token % 4)[:, None])[:, 0]
    uniform = (((raw >> 12) & (2**52 - 1)).double() + 0.5) * 2.0**-52
    return -torch.log(-torch.log(uniform))


def _philox(counter: list[torch.Tensor], key: list[torch.Tensor]) -> list[torch.Tensor]:
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


def _high(words: torch.Tensor, factor: int) -> torch.Tensor:
    """The upper 64 bits of a product of unsigned 64-bit numbers."""
    low, high = words & _LOW, (words >> 32) & _LOW
    factor_low, factor_high = factor & _LOW, factor >> 32
    lower, middle, other = low * factor_low, low * factor_high, high * factor_low
    carried = ((lower >> 32) & _LOW) + (middle & _LOW) + (other & _LOW)
    return high * factor_high + ((middle >> 32) & _LOW) + ((other >> 32) & _LOW) + ((carried >> 32) & _LOW)
