"""Other numbers of rows than a block's, where this machine is seen to give them the block's bits.

An exact class is defined by products over `rows` positions at a time (`exact_layers`). Sixteen of them cost a decode
step more than the one position that is new, and a long text reads a matrix once for each sixteen. Libraries sum a row
of few or of many in the same order as a row of sixteen on most machines, and nothing promises it. So each linear layer
is tried before it is first used with another number of rows, in two ways.

With weights of its shape whose terms cancel: each product appears twice, with either sign, and of sizes that lie far
apart. The true sum is zero, so that what comes out is nothing but rounding, and another order of the sum shows in 40 to
99 % of all results. Rounded to bfloat16, it would show in one of thousands among random ones: a text finds it and a
trial does not. And with its own weights, every row of a block of random states must come out equal to the last bit
wherever it stands. Where a trial finds a difference, that layer goes on with another number, a block's at last. What a
node signs is the same either way.

Attention is tried the same way, at each length that it is used at, since kernels cut sequences into parts: with scores
that cancel, and with values that do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from troth.node.engine.packed_products import Library, Product, packs, product_with

FEWER: tuple[int, ...] = (1, 2, 4, 8)
"""Numbers of rows that are tried, fewest first, when as few are first asked for."""
WIDE = 64
"""Rows that are tried for longer texts; more of them at a time are hardly faster."""
FEW_QUERIES = 4
"""Of attention. Of fewer, its kernels are known to sum in another order."""
SCALES = (1.0, 30.0)
"""Of the random states that are tried: what stands after a norm, and what large activations are."""
APART = 8
"""Powers of two by which factors that cancel lie apart at most, to either side: sums of few terms round, too."""
RESULTS, MOST_DRAWS = 16_384, 16
"""Of a shape that cancel, at least, and in how many draws at most."""
OUTPUTS = 512
"""Of a matrix, that are drawn; the others repeat them. Of a wide model's matrices each draw would take a second."""
FAR_APART = 20
"""The same of values that attention adds up, which are only weighed and not multiplied."""
LOUD = 6
"""Powers of two that make rounding in a score worth about one: less would not show in its share."""
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Query (1, heads, rows, size), key and value (1, their heads, keys, size), mask (1, 1, rows, keys) to attention."""
_TRIED: dict[Hashable, bool] = {}
"""Attention that was tried, and whether few queries gave the bits of a block."""
_ORDERED: dict[Hashable, bool] = {}
"""Shapes of linear layers, likewise."""
Drawn = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class TriedRows:
    """A product with the bits that it has in blocks of `rows`, over as many positions at a time as is fastest."""

    def __init__(self, product: Product, rows: int, other_trial: Callable[[int], bool] = lambda count: True) -> None:
        """`other_trial` of so many rows is made first."""
        self._product = product
        self._rows = rows
        self._other_trial = other_trial
        self._equal: dict[int, bool] = {}

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Over (…, positions, width) states."""
        count = states.shape[-2]
        if count < WIDE or not self._has_bits(WIDE, states):
            return in_fixed_rows(self._product, states, self.that_hold(count, states))
        whole = count // WIDE * WIDE
        made = in_fixed_rows(self._product, states[..., :whole, :], WIDE)
        return made if whole == count else torch.cat([made, self(states[..., whole:, :])], dim=-2)

    def that_hold(self, count: int, like: torch.Tensor) -> int:
        """The fewest rows for so many positions; `like` gives width and dtype of the states that are tried."""
        return next((few for few in FEWER if few >= count and self._has_bits(few, like)), self._rows)

    def _has_bits(self, count: int, like: torch.Tensor) -> bool:
        if like.device.type != "cpu":
            return False
        if count not in self._equal:
            self._equal[count] = self._other_trial(count) and equal_rows(self._product, like, self._rows, count)
        return self._equal[count]


class FixedLinear:
    """A linear layer over (positions, width) states, called with one of few numbers of positions, and so always one
    kernel.

    It is called with `rows` of them at a time, or with another number that is faster and gives the same bits. The
    layer's weight is let go of where the library keeps it in an order of its own.
    """

    def __init__(self, layer: torch.nn.Linear, rows: int) -> None:
        weight, bias, threads = layer.weight, layer.bias, torch.get_num_threads
        self._product = product_with(weight.detach(), bias)
        self._rows = rows
        like, biased = weight.detach().to("meta"), bias is not None
        if packs(weight.dtype, weight.device):
            layer.weight = torch.nn.Parameter(like, requires_grad=False)
        self._tried = TriedRows(
            self._product, rows, lambda count: cancels_alike(like, rows, count, biased=biased, threads=threads())
        )

    def __call__(self, states: torch.Tensor, filled: int = 0) -> torch.Tensor:
        """States (positions, width) to (positions, other width). Of a whole block, the last `filled` count for nothing:
        some numbers are given for them."""
        if not filled:
            return self._tried(states)
        rows = self._tried.that_hold(len(states) - filled, states)
        return self._product(states[:rows]).repeat(self._rows // rows, 1)


def in_fixed_rows(product: Product, states: torch.Tensor, rows: int) -> torch.Tensor:
    """`product` over (…, positions, width) states, called with exactly `rows` positions at a time."""
    count = states.shape[-2]
    if count == rows:
        return product(states)
    # Copies, and not zeros: a mixture sends them to experts that it has to read anyway.
    left = states[..., -1:, :].expand(*states.shape[:-2], -count % rows, states.shape[-1])
    filled = torch.cat([states, left], dim=-2)
    if count < rows:
        return product(filled)[..., :count, :]
    return torch.cat([product(part) for part in filled.split(rows, dim=-2)], dim=-2)[..., :count, :]


def equal_rows(product: Product, like: torch.Tensor, rows: int, count: int) -> bool:
    """Whether random states have the same bits, so many at a time, as `rows` at a time.

    `like` gives width and dtype of the states that are tried.
    """
    blocks = (_random((max(rows, count), like.shape[-1]), like, scale) for scale in SCALES)
    return all(_equal(product, block, rows, count) for block in blocks)


def cancels_alike(
    like: torch.Tensor, rows: int, count: int, *, biased: bool, threads: int, library: Library = product_with
) -> bool:
    """Whether sums of so many rows have the order of a block of `rows`, in layers of this shape and dtype; tried once
    for each. `library` is what computes such a layer."""
    known = (library, tuple(like.shape), like.dtype, biased, rows, count, threads)
    if known not in _ORDERED:
        generator, height, most = torch.Generator().manual_seed(rows), len(like), max(rows, count)
        bias = torch.zeros(height, dtype=like.dtype) if biased else None
        draws = min(MOST_DRAWS, -(-RESULTS // (most * min(height, OUTPUTS))) + 1)
        drawn = (cancelling(most, like, generator) for _ in range(draws))
        _ORDERED[known] = all(_equal(library(weights, bias), states, rows, count) for states, weights in drawn)
    return _ORDERED[known]


def cancelling(rows: int, like: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """States (rows, width) and weights (other width, width), shaped as `like`, whose products sum to zero.

    Each product is there twice, with either sign, at two places that are drawn; of odd widths one weight is zero.
    """
    height, width = min(len(like), OUTPUTS), like.shape[1]
    places = torch.randperm(width, generator=generator)
    paired = [_apart((count, width // 2), like.dtype, generator, APART) for count in (rows, height)]
    states, weights = torch.ones(rows, width, dtype=like.dtype), torch.zeros(height, width, dtype=like.dtype)
    for half, sign in ((places[: width // 2], 1), (places[width // 2 : width // 2 * 2], -1)):
        states[:, half], weights[:, half] = sign * paired[0], paired[1]
    return states, weights.repeat(-(-len(like) // height), 1)[: len(like)]


def _apart(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, apart: int) -> torch.Tensor:
    powers = torch.randint(-apart, apart + 1, shape, generator=generator)
    return torch.ldexp(torch.randn(shape, generator=generator), powers).to(dtype)


def _equal(product: Product, states: torch.Tensor, rows: int, count: int) -> bool:
    """Whether states have the same bits in parts of either size; the second time they are turned by one row, so that
    each stands at two places."""
    whole = _in_parts(product, states, rows)
    return all(_in_parts(product, states.roll(turn, 0), count).equal(whole.roll(turn, 0)) for turn in (0, 1))


def _in_parts(product: Product, states: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.cat([product(part) for part in states.split(rows)])


def equal_queries(  # noqa: PLR0917 - what attention takes
    attend: Attend, kind: Hashable, rows: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> bool:
    """Whether `FEW_QUERIES` rows of a query give the bits of the block of `rows` at the keys' end.

    Tried once for each `kind` of attention, each shape and each length.
    """
    if query.device.type != "cpu":
        return False
    laid = [(tuple(states.shape), states.stride()) for states in (key, value)]
    known = (kind, rows, query.shape[1], *laid, query.dtype, torch.get_num_threads())
    if known not in _TRIED:
        _TRIED[known] = _same_queries(attend, rows, query, key, value)
    return _TRIED[known]


def _same_queries(attend: Attend, rows: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    generator, end = torch.Generator().manual_seed(rows), key.shape[2]
    mask = (torch.arange(end) <= torch.arange(end - rows, end)[:, None])[None, None]
    likes = (query.new_empty(1, query.shape[1], rows, query.shape[3]), key, value)
    for draw in (_any_states, _cancelling_scores, _cancelling_values):
        asked, *kept = draw(likes, rows, generator)
        # Kernels may mind where keys and values lie.
        keys, values = (_laid_like(states, like) for states, like in zip(kept, (key, value), strict=True))
        parts = [slice(first, first + FEW_QUERIES) for first in range(0, rows, FEW_QUERIES)]
        made = [attend(asked[:, :, part], keys, values, mask[:, :, part]) for part in parts]
        if not torch.equal(torch.cat(made, dim=2), attend(asked, keys, values, mask)):
            return False
    return True


def _any_states(likes: Drawn, rows: int, generator: torch.Generator) -> Drawn:
    query, key, value = (torch.randn(one.shape, generator=generator).to(one.dtype) for one in likes)
    return query, key, value


def _cancelling_scores(likes: Drawn, rows: int, generator: torch.Generator) -> Drawn:
    """Scores are rounding alone, and shares follow from them."""
    query, key, value = _any_states(likes, rows, generator)
    size = query.shape[-1]
    places = torch.randperm(size, generator=generator)
    halves = places[: size // 2], places[size // 2 : size // 2 * 2]
    for states, signs in ((query, (1, -1)), (key, (1, 1))):
        paired = 2**LOUD * _apart((*states.shape[:-1], size // 2), states.dtype, generator, APART)
        states.zero_()
        for half, sign in zip(halves, signs, strict=True):
            states[..., half] = sign * paired
    return query, key, value


def _cancelling_values(likes: Drawn, rows: int, generator: torch.Generator) -> Drawn:
    """All shares are equal, and values come in pairs that cancel: before the block anywhere, in it side by side."""
    query, key, value = (torch.zeros_like(one) for one in likes)
    before = value.shape[2] - rows
    places = torch.cat([torch.randperm(before, generator=generator), torch.arange(before, before + rows)])
    paired = _apart((*value.shape[:2], len(places) // 2, value.shape[3]), value.dtype, generator, FAR_APART)
    value[:, :, places[::2]], value[:, :, places[1::2]] = paired, -paired
    return query, key, value


def _laid_like(states: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype).copy_(states)


def _random(shape: tuple[int, ...], like: torch.Tensor, scale: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(shape[-1])
    return (scale * torch.randn(shape, generator=generator)).to(like.dtype)
