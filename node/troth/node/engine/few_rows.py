"""A decode step need not compute a whole block: fewer rows, where this machine is seen to give them the block's bits.

An exact class is defined by products over `rows` positions at a time (`exact_layers`). Sixteen of them cost a decode
step more than the one position that is new. Libraries sum a row of four in the same order as a row of sixteen on most
machines, and nothing promises it. So each product is tried with its own weights before it is first used with fewer
rows: every row of a block of random states must come out equal to the last bit wherever it stands. Where one
does not, that product goes on in whole blocks. What a node signs is the same either way.

This holds for float32 on processors. There another order of a sum shows in a part of all results, so that a trial of a
few thousand cannot miss it. Rounded to bfloat16, it would show in one of thousands: a text finds it and a trial does
not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch

Product = Callable[[torch.Tensor], torch.Tensor]
FEWER = (4, 8)
"""Numbers of rows that are tried, fewest first. Of fewer than four, libraries are known to sum in another order."""
SCALES = (1.0, 30.0)
"""Of the random states that are tried: what stands after a norm, and what large activations are."""
TRIED_KEYS = (0, 48, 512, 1_040)
"""Positions before the block that attention is tried with: kernels cut long sequences into parts."""


class FixedProduct:
    """`product` over (positions, width) states, called with one of few numbers of positions, and so always one kernel.

    Called with `rows` of them at a time, or with the fewest of `FEWER` that hold all of them and give the same bits.
    """

    def __init__(self, product: Product, rows: int, *, tries: bool = True) -> None:
        """`tries`: whether fewer rows may be used; not where rows are sent to parts by what they hold."""
        self._product = product
        self._rows = rows
        self._fewer: tuple[int, ...] | None = None if tries else ()

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """States (…, positions, width) to (…, positions, other width)."""
        return in_fixed_rows(self._product, states, self._fewest(states))

    def _fewest(self, states: torch.Tensor) -> int:
        count = states.shape[-2]
        if count > FEWER[-1] or not _shows(states) or states.numel() != count * states.shape[-1]:
            return self._rows
        if self._fewer is None:
            # Measured for both at once: a width belongs to a product, and its dtype to the class.
            self._fewer = equal_rows(self._product, states, self._rows)
        return next((rows for rows in self._fewer if rows >= count), self._rows)


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


def equal_rows(product: Product, like: torch.Tensor, rows: int) -> tuple[int, ...]:
    """Those of `FEWER` with which every row of a block has the bits that it has among `rows`.

    `like` gives shape before the positions, width and dtype of the states that are tried.
    """
    found = []
    blocks = [_random((*like.shape[:-2], rows, like.shape[-1]), like, scale) for scale in SCALES]
    whole = [product(block) for block in blocks]
    for few in FEWER:
        # Twice, the second time two rows further: each row stands at several places.
        tried = [(turn, *pair) for turn in (0, 2) for pair in zip(blocks, whole, strict=True)]
        if all(_in_parts(product, block.roll(turn, -2), few).equal(made.roll(turn, -2)) for turn, block, made in tried):
            found.append(few)
    return tuple(found)


def _in_parts(product: Product, block: torch.Tensor, few: int) -> torch.Tensor:
    return torch.cat([product(part) for part in block.split(few, dim=-2)], dim=-2)


Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Query (1, heads, rows, size), key and value (1, their heads, keys, size), mask (1, 1, rows, keys) to attention."""
_TRIED: dict[Hashable, int] = {}


def few_queries(  # noqa: PLR0917 - what attention takes
    attend: Attend, kind: Hashable, rows: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> int:
    """The fewest query rows that give the bits of `rows`; tried once for each `kind` of attention and each shape."""
    if not _shows(query):
        return rows
    sizes = tuple((states.shape[1], states.shape[3]) for states in (query, key, value))
    known = (kind, rows, sizes, query.dtype, torch.get_num_threads())
    if known not in _TRIED:
        same = all(_same_queries(attend, rows, sizes, query, before) for before in TRIED_KEYS)
        _TRIED[known] = FEWER[0] if same else rows
    return _TRIED[known]


def _same_queries(attend: Attend, rows: int, sizes: Sequence[tuple[int, int]], like: torch.Tensor, before: int) -> bool:
    end = before + rows
    query, key, value = (
        _random((1, heads, count, size), like, 1.0)
        for (heads, size), count in zip(sizes, (rows, end, end), strict=True)
    )
    mask = (torch.arange(end) <= torch.arange(before, end)[:, None])[None, None]
    parts = [slice(first, first + FEWER[0]) for first in range(0, rows, FEWER[0])]
    made = [attend(query[:, :, part], key, value, mask[:, :, part]) for part in parts]
    return bool(torch.equal(torch.cat(made, dim=2), attend(query, key, value, mask)))


def _shows(states: torch.Tensor) -> bool:
    """Whether another order of a sum would show in a trial."""
    return bool(states.device.type == "cpu" and states.dtype == torch.float32)


def _random(shape: tuple[int, ...], like: torch.Tensor, scale: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(shape[-1])
    return (scale * torch.randn(shape, generator=generator)).to(like.dtype)
