"""A slice whose decode gives the bits of its prefill: all that is computed has a shape that the text does not choose.

CPU libraries choose a kernel by the shape: a product of one row (decode) sums in another order than one of a thousand
(prefill), and the last elements of an array go through another exponential than those before. So products, and all that
stands beside attention in a layer, run over `ROWS` positions at a time (`in_fixed_rows`), the last ones filled up with
copies: the same shape, the same kernel; within it, rows do not mix. Experts get as many rows as happened to be sent to
them, so their products are filled up once more (`_FixedProducts`). Attention runs over blocks of `ROWS` queries that
begin at multiples of it, against all keys up to the block's end: the same shapes whether one position of the block is
new or all of them. What a shape leaves over there is masked, and adds exactly nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from transformers.masking_utils import sdpa_mask

from troth.node.engine.attention_cache import AttentionCache
from troth.node.engine.few_rows import FEW_QUERIES, FixedLinear, TriedRows, equal_queries, in_fixed_rows
from troth.node.engine.layers import LayerSlice
from troth.node.engine.packing import KeptPair, register_packed
from troth.node.errors import ModelError

ROWS = 16
"""Positions of a block. More cost a decode step more, fewer a prefill; the bits depend on it, so it is part of the
class (by its probe)."""
NAME = "troth_blocks"
PRODUCTS = frozenset(
    {torch.matmul, torch.mm, torch.bmm, torch.Tensor.matmul, torch.Tensor.mm, torch.Tensor.bmm, torch.Tensor.__matmul__}
)


class BlockCache(AttentionCache):
    """What it gives reaches to the end of the block of the last position: what lies beyond that one is masked."""

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *unused: Any) -> KeptPair:
        """See `AttentionCache.update`."""
        self.write(keys, values, layer)
        end = self.length + keys.shape[2]
        kept = self.until(-(-end // ROWS) * ROWS, layer)
        for states in kept:
            # Not even masked may there be what is no number, as rows that were taken back can be.
            states[:, :, end:] = 0
        return kept


class ExactSlice(LayerSlice):
    """See `LayerSlice`; the same computation in fixed shapes."""

    cache_type = BlockCache

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if not self.decoder.model._can_set_attn_implementation():
            what = "the family computes its attention by itself, so that its shapes cannot be fixed"
            raise ModelError(what, self.config.model_type, "Serve a tolerant class of it.")
        # A block is as many rows, however few of them are new.
        self.decoder.fewest_widened = 1
        self.config._attn_implementation = NAME
        self.config._experts_implementation = "eager"
        for part in self.decoder.base.children():
            if "Rotary" in type(part).__name__:
                _turn_in_blocks(part)

    def _layer(self, index: int, weights: Mapping[str, torch.Tensor]) -> torch.nn.Module:
        # Where layers are made, since a slice that moves makes others later.
        layer = super()._layer(index, weights)
        for part in layer.children():
            filled = _fix_all(part)
            if _feeds_forward(part):
                _run_in_blocks(part, filled)
        return layer


class _Filled:
    """How many rows at the end of the block that a part of a layer is given count for nothing."""

    rows = 0


def _fix_all(part: torch.nn.Module) -> _Filled:
    filled = _Filled()
    for module in part.modules():
        # Some routers are linear layers that do more.
        if type(module).forward is torch.nn.Linear.forward:
            _fix(module, filled)
        elif _has_matrix(module):
            _fix_products(module)
    return filled


def _feeds_forward(part: torch.nn.Module) -> bool:
    """Whether a part of a layer is its feed-forward network or mixture, and no norm and no attention."""
    attends = any("Attention" in type(module).__name__ for module in part.modules())
    return not attends and any(weight.ndim > 1 for weight in part.parameters())


def _run_in_blocks(part: torch.nn.Module, filled: _Filled) -> None:
    forward, mixes = part.forward, _is_mixture(part)
    beside: list[Any] = []

    def once(block: torch.Tensor) -> torch.Tensor:
        if block.ndim < len(("sequences", "positions", "width")):
            return once(block[None])[0]
        made = forward(block)
        if not isinstance(made, tuple):
            return made.view(block.shape)
        beside[:] = made[1:]
        return made[0].view(block.shape)

    tried = TriedRows(once, ROWS)

    def in_blocks(states: torch.Tensor) -> Any:
        # A mixture sends rows to experts by what they hold, so its linear layers see others than are counted here.
        counted = not mixes and states.numel() == states.shape[-2] * states.shape[-1]
        # What stands between linear layers shows in a trial in float32 alone.
        shows = counted and states.dtype == torch.float32
        rows = tried.that_hold(states.shape[-2], states) if shows else ROWS
        beside.clear()
        filled.rows = max(0, ROWS - states.shape[-2]) if counted and rows == ROWS else 0
        try:
            made = tried(states) if shows else in_fixed_rows(once, states, ROWS)
        finally:
            filled.rows = 0
        return (made, *beside) if beside else made

    part.forward = in_blocks  # type: ignore[method-assign, unused-ignore]


def _is_mixture(part: torch.nn.Module) -> bool:
    """Whether products in it are other than linear layers'."""
    weighted = (module for module in part.modules() if any(True for _ in module.parameters(recurse=False)))
    return any(not isinstance(module, torch.nn.Linear) and _has_matrix(module) for module in weighted)


def _has_matrix(module: torch.nn.Module) -> bool:
    return any(weight.ndim > 1 for weight in module.parameters(recurse=False))


def _fix(module: torch.nn.Module, filled: _Filled) -> None:
    assert isinstance(module, torch.nn.Linear)
    product = FixedLinear(module, ROWS)

    def fixed(states: torch.Tensor) -> torch.Tensor:
        rows = states.reshape(-1, states.shape[-1])
        made = product(rows, filled.rows if len(rows) == ROWS else 0)
        return made.reshape(*states.shape[:-1], made.shape[-1])

    module.forward = fixed  # type: ignore[method-assign, unused-ignore]


def _fix_products(module: torch.nn.Module) -> None:
    forward = module.forward

    def fixed(*given: Any, **named: Any) -> Any:
        with _FixedProducts():
            return forward(*given, **named)

    module.forward = fixed  # type: ignore[method-assign, unused-ignore]


def _turn_in_blocks(rotary: torch.nn.Module) -> None:
    forward = rotary.forward

    def in_blocks(states: torch.Tensor, position_ids: torch.Tensor, *given: Any, **named: Any) -> Any:
        count = position_ids.shape[-1]
        left = position_ids[..., -1:].expand(*position_ids.shape[:-1], -count % ROWS)
        blocks = torch.cat([position_ids, left], dim=-1).split(ROWS, dim=-1)
        made = [forward(states, block, *given, **named) for block in blocks]
        if isinstance(made[0], tuple):
            return tuple(torch.cat(parts, dim=-2)[..., :count, :] for parts in zip(*made, strict=True))
        return torch.cat(made, dim=-2)[..., :count, :]

    rotary.forward = in_blocks  # type: ignore[method-assign, unused-ignore]


class _FixedProducts(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """Within it, products of states with weights that are no linear layer's have fixed shapes, too."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if function is torch.nn.functional.linear and args:
            states, *rest = args
            rows = states.reshape(-1, states.shape[-1])
            made = in_fixed_rows(lambda part: function(part, *rest, **named), rows, ROWS)
            return made.reshape(*states.shape[:-1], made.shape[-1])
        if function in PRODUCTS and len(args) == 2 and args[0].ndim > 1:
            return in_fixed_rows(lambda part: function(part, args[1]), args[0], ROWS)
        return function(*args, **named)


class _QueryBlock(NamedTuple):
    """Some of the new positions of a pass: those numbered `new`, which are `place` of an aligned block up to `end`.

    `mask`, shape (1, 1, ROWS, end), says which keys each row of the block sees. A row that stands for no new position
    sees the first one: one that saw none would be no number.
    """

    new: slice
    place: slice
    end: int
    mask: torch.Tensor


def attend_in_blocks(  # noqa: PLR0917 - the order of the arguments is that of transformers
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Sequence[_QueryBlock],
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls for one layer.

    Shapes: query (1, heads, new, head size), key and value (1, key-value heads, up to a block's end, head size);
    `attention_mask` is what `_blocks` makes; `s_aux` are sinks, a number a head, that take a part of the attention.
    Returns (1, new, heads, size).
    """
    kind = (softcap is not None, s_aux is not None)

    def attend(asked: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if any(kind):
            return _attend(asked, keys, values, mask, scaling or query.shape[-1] ** -0.5, softcap, s_aux)
        return torch.nn.functional.scaled_dot_product_attention(
            asked, keys, values, attn_mask=mask, scale=scaling, enable_gqa=True
        )

    made = []
    for new, place, end, mask in attention_mask:
        seen = key[:, :, :end], value[:, :, :end]
        # Of a decode step's block, the part that holds its position.
        first = place.start // FEW_QUERIES * FEW_QUERIES
        asked = slice(first, first + FEW_QUERIES)
        # Caps and sinks are elementwise operations, of which rounding to bfloat16 hides from a trial what they do.
        shows = query.dtype == torch.float32 or not any(kind)
        if place.stop > asked.stop or not shows or not equal_queries(attend, kind, ROWS, query, *seen):
            asked = slice(0, ROWS)
        rows = _filled(query[:, :, new], place.start - asked.start, asked.stop - asked.start)
        out = attend(rows, *seen, mask[:, :, asked])
        made.append(out[:, :, place.start - asked.start : place.stop - asked.start])
    return torch.cat(made, dim=2).transpose(1, 2).contiguous(), None


def _attend(  # noqa: PLR0917 - as above
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    scaling: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention with what no kernel of torch has, in the order of operations that transformers' families use."""
    groups = query.shape[1] // key.shape[1]
    weights = torch.matmul(query, key.repeat_interleave(groups, dim=1).transpose(2, 3)) * scaling
    if softcap is not None:
        weights = torch.tanh(weights / softcap) * softcap
    weights = weights.masked_fill(~mask, torch.finfo(weights.dtype).min)
    if sinks is None:
        shares = torch.nn.functional.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)
    else:
        with_sinks = torch.cat([weights, sinks.reshape(1, -1, 1, 1).expand(*weights.shape[:3], 1)], dim=-1)
        with_sinks = with_sinks - with_sinks.max(dim=-1, keepdim=True).values
        shares = torch.nn.functional.softmax(with_sinks, dim=-1, dtype=with_sinks.dtype)[..., :-1]
    return torch.matmul(shares, value.repeat_interleave(groups, dim=1))


def _filled(query: torch.Tensor, first: int, rows: int) -> torch.Tensor:
    """So many rows, of which those from `first` on are the query's."""
    if query.shape[2] == rows:
        return query
    filled = query.new_zeros((*query.shape[:2], rows, query.shape[3]))
    filled[:, :, first : first + query.shape[2]] = query
    return filled


def _blocks(**named: Any) -> list[_QueryBlock]:
    """The masks of a pass, for all layers: blocks need their part even where a kernel would know it by itself."""
    seen: torch.Tensor = sdpa_mask(**{**named, "allow_is_causal_skip": False})
    start, end = named["q_offset"], named["q_offset"] + named["q_length"]
    made = []
    for block in range(start // ROWS * ROWS, end, ROWS):
        first, last = max(start, block), min(end, block + ROWS)
        new, place = slice(first - start, last - start), slice(first - block, last - block)
        mask = torch.zeros((1, 1, ROWS, block + ROWS), dtype=torch.bool, device=seen.device)
        mask[..., 0] = True
        mask[:, :, place, :last] = seen[:, :, new, :last]
        made.append(_QueryBlock(new, place, block + ROWS, mask))
    return made


register_packed(NAME, attend_in_blocks, _blocks)
