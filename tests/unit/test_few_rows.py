"""Fewer rows than a block are used where they are seen to have its bits, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from troth.node.engine import few_rows, packed_products  # noqa: E402
from troth.node.engine.few_rows import FixedLinear, cancelling, equal_queries, equal_rows  # noqa: E402
from troth.node.engine.packed_products import packs, product_with  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, WIDTH, HEIGHT = 16, 24, 20
Linear = Callable[..., torch.Tensor]


def in_order(states: torch.Tensor, weights: torch.Tensor, places: list[int]) -> torch.Tensor:
    """Products summed one after the other in float32, and rounded once: what every library's result is, but for the
    order."""
    total = torch.zeros(len(states), len(weights))
    for place in places:
        total = total + states[:, place, None].float() * weights[None, :, place].float()
    return total.to(states.dtype)


def forwards(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A library whose rows never mind the others."""
    made = in_order(states, weight, list(range(states.shape[1])))
    return made if bias is None else made + bias


def backwards(least: int) -> Linear:
    """A library that sums the other way round where there are fewer rows."""

    def linear(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if len(states) >= least:
            return forwards(states, weight, bias)
        return in_order(states, weight, list(reversed(range(states.shape[1]))))

    return linear


def in_two(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A library that keeps two sums where there are few rows, and adds them up at the end."""
    if len(states) >= ROWS:
        return forwards(states, weight, bias)
    places, wide = list(range(states.shape[1])), states.float()
    parts = (in_order(wide, weight.float(), places[turn::2]) for turn in (0, 1))
    return sum(parts).to(states.dtype)


def last_column(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A library that goes another way for what is left over at the end, if there are few rows."""
    made, other = forwards(states, weight), backwards(ROWS)(states, weight)
    return torch.cat([made[:, :-1], other[:, -1:]], dim=1)


def by_place(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A library whose rows depend on where they stand among the others."""
    return torch.cat([backwards(2 if row % 4 else 0)(one[None], weight) for row, one in enumerate(states)])


class Counted:
    """A library that remembers with how many rows it was called."""

    def __init__(self, linear: Linear) -> None:
        self.linear = linear
        self.counts: list[int] = []

    def __call__(self, states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        self.counts.append(len(states))
        return self.linear(states, weight, bias)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[[Linear], Counted]:
    def install(linear: Linear) -> Counted:
        counted = Counted(linear)
        monkeypatch.setattr(few_rows, "_ORDERED", {})
        monkeypatch.setattr(torch.nn.functional, "linear", counted)
        monkeypatch.setattr(packed_products, "_library_packs", lambda: False)
        return counted

    return install


def layer_of(dtype: torch.dtype, *, bias: bool = False) -> torch.nn.Linear:
    return torch.nn.Linear(WIDTH, HEIGHT, bias=bias, dtype=dtype).requires_grad_(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("linear", "count", "used"),
    [
        (forwards, 1, 1),
        (forwards, 2, 2),
        (forwards, 3, 4),
        (forwards, 5, 8),
        (forwards, 9, ROWS),
        (backwards(2), 1, 2),
        (backwards(5), 1, 8),
        (backwards(9), 1, ROWS),
        (in_two, 2, ROWS),
        (last_column, 1, ROWS),
        (by_place, 1, ROWS),
    ],
)
@pytest.mark.slow
def test_the_fewest_rows_that_have_the_bits_of_a_block(
    linear: Linear, count: int, used: int, dtype: torch.dtype, library: Callable[[Linear], Counted]
) -> None:
    counted, layer = library(linear), layer_of(dtype)
    fixed = FixedLinear(layer, ROWS)
    states = torch.randn(count, WIDTH).to(dtype)
    fixed(states)
    counted.counts.clear()
    made = fixed(states)
    assert counted.counts == [used]
    whole = torch.cat([states, states[-1:].expand(ROWS - count, WIDTH)])
    assert torch.equal(made, linear(whole, layer.weight)[:count])


@pytest.mark.parametrize("linear", [backwards(9), in_two, last_column], ids=["backwards", "in two", "last column"])
def test_what_cancels_shows_an_order_that_rounding_to_bfloat16_hides(linear: Linear) -> None:
    generator = torch.Generator().manual_seed(3)
    states, weights = cancelling(ROWS, torch.empty(HEIGHT, WIDTH, dtype=torch.bfloat16), generator)
    few = torch.cat([linear(part, weights) for part in states.split(4)])
    told = few != linear(states, weights)
    assert told[:, -1].float().mean() > 0.4
    # The trial by random states alone passes the same library.
    layer = layer_of(torch.bfloat16)
    like = torch.randn(1, WIDTH).bfloat16()
    assert equal_rows(lambda block: linear(block, layer.weight), like, ROWS, 4)


@pytest.mark.parametrize("width", [16, 17, 64])
def test_what_cancels_sums_to_zero_but_for_rounding(width: int) -> None:
    states, weights = cancelling(ROWS, torch.empty(40, width), torch.Generator().manual_seed(1))
    terms = states[:, None].double() * weights[None].double()
    assert torch.equal(terms.sum(-1).abs() > 1e-12 * terms.abs().sum(-1), torch.zeros(ROWS, 40, dtype=torch.bool))
    assert (terms != 0).sum() == ROWS * 40 * (width // 2 * 2)


@pytest.mark.slow
def test_shapes_are_tried_once_and_only_where_few_rows_come(library: Callable[[Linear], Counted]) -> None:
    counted, layer = library(forwards), layer_of(torch.bfloat16, bias=True)
    fixed = FixedLinear(layer, ROWS)
    fixed(torch.randn(3 * ROWS + 1, WIDTH).bfloat16())
    assert counted.counts == [ROWS] * 4, "nothing to try"
    fixed(torch.randn(1, WIDTH).bfloat16())
    tried = len(counted.counts)
    fixed(torch.randn(1, WIDTH).bfloat16())
    assert len(counted.counts) == tried + 1
    before = len(few_rows._ORDERED)
    FixedLinear(layer_of(torch.bfloat16, bias=True), ROWS)(torch.randn(1, WIDTH).bfloat16())
    assert len(few_rows._ORDERED) == before == 1
    fixed(torch.randn(2, WIDTH).bfloat16())
    assert len(few_rows._ORDERED) == 2, "as many rows as were not asked for before"


@pytest.mark.slow
def test_rows_that_only_fill_a_block_are_not_computed(library: Callable[[Linear], Counted]) -> None:
    counted, layer = library(forwards), layer_of(torch.bfloat16)
    fixed, block = FixedLinear(layer, ROWS), torch.randn(ROWS, WIDTH).bfloat16()
    fixed(block, ROWS - 2)
    counted.counts.clear()
    made = fixed(block, ROWS - 2)
    assert counted.counts == [2]
    assert made.shape == (ROWS, HEIGHT)
    assert torch.equal(made[:2], forwards(block, layer.weight)[:2])


def narrow(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A library that sums the other way round where there are more rows than a block has."""
    places = list(range(states.shape[1]))
    return in_order(states, weight, places if len(states) <= ROWS else places[::-1])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("linear", "used"), [(forwards, [64, 64, ROWS, ROWS]), (narrow, [ROWS] * 10)], ids=["alike", "another order"]
)
def test_long_texts_go_in_wide_parts_where_those_have_the_bits_of_a_block(
    linear: Linear, used: list[int], dtype: torch.dtype, library: Callable[[Linear], Counted]
) -> None:
    counted, layer = library(linear), layer_of(dtype)
    fixed, states = FixedLinear(layer, ROWS), torch.randn(147, WIDTH).to(dtype)
    fixed(states)
    counted.counts.clear()
    made = fixed(states)
    assert counted.counts == used
    blocks = torch.cat([linear(part, layer.weight) for part in states[:144].split(ROWS)])
    assert torch.equal(made[:144], blocks)


REAL_SHAPES = [(20, 24), (192, 576), (576, 1536), (512, 2048)]


@pytest.mark.parametrize("shape", REAL_SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_laid_out_beforehand_have_the_bits_of_a_block_with_few_rows(
    dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    """By sums that cancel, which no trial has seen."""
    if not packs(dtype, torch.device("cpu")):
        pytest.skip("this processor has no such kernels")
    generator = torch.Generator().manual_seed(5)
    states, weights = cancelling(ROWS, torch.empty(shape, dtype=dtype), generator)
    layer = torch.nn.Linear(shape[1], shape[0], bias=False, dtype=dtype).requires_grad_(False)
    layer.weight = torch.nn.Parameter(weights, requires_grad=False)
    fixed = FixedLinear(layer, ROWS)
    assert layer.weight.is_meta
    assert layer.weight.shape == shape, "what a layer is can still be asked"
    block = product_with(weights)(states)
    for count in (1, 2, 3, 5, 8, ROWS):
        assert torch.equal(fixed(states[:count]), block[:count])
    assert torch.equal(torch.cat([fixed(part) for part in states.repeat(3, 1).split(29)]), block.repeat(3, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bits_do_not_depend_on_the_number_of_threads(dtype: torch.dtype) -> None:
    """torch's own products in float32 do, of as many columns; nodes of one class have processors of any size."""
    if not packs(dtype, torch.device("cpu")):
        pytest.skip("this processor has no such kernels")
    states, weights = cancelling(ROWS, torch.empty(512, 4_096, dtype=dtype), torch.Generator().manual_seed(7))
    before, made = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            made.append(product_with(weights)(states))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, made[0]) for one in made)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", REAL_SHAPES, ids=str)
def test_in_bfloat16_they_have_the_bits_of_torchs_own_product(shape: tuple[int, int], biased: bool) -> None:
    """So nodes that lay out weights belong to one class with those that do not."""
    if not packs(torch.bfloat16, torch.device("cpu")):
        pytest.skip("this processor has no such kernels")
    generator = torch.Generator().manual_seed(6)
    states, weights = cancelling(ROWS, torch.empty(shape, dtype=torch.bfloat16), generator)
    bias = torch.randn(shape[0], generator=generator).bfloat16() if biased else None
    assert torch.equal(product_with(weights, bias)(states), torch.nn.functional.linear(states, weights, bias))


END, SIZE = 2 * ROWS, 8


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)


def summed(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Attention in float32 whose sums go one by one, rounded once at the end."""
    return attend_in(list(range(query.shape[-1])), list(range(key.shape[2])), query, key, value, mask)


def attend_in(sizes: list[int], keys: list[int], *given: torch.Tensor) -> torch.Tensor:
    """The same in these orders of the scores' and the values' sums."""
    query, key, value, mask = given
    wide, groups = query.float(), query.shape[1] // key.shape[1]
    by_head, kept = (one.float().repeat_interleave(groups, dim=1) for one in (key, value))
    scores = torch.zeros(*query.shape[:3], key.shape[2])
    for place in sizes:
        scores = scores + wide[..., place, None] * by_head[..., None, :, place]
    shares = torch.softmax((scores * query.shape[-1] ** -0.5).masked_fill(~mask, -torch.inf), dim=-1)
    made = torch.zeros(*query.shape[:3], value.shape[3])
    for place in keys:
        made = made + shares[..., place, None] * kept[..., None, place, :]
    return made.to(query.dtype)


def scores_backwards(query: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
    """A kernel that sums scores the other way round for few queries."""
    sizes = list(range(query.shape[-1]))
    return attend_in(sizes if query.shape[2] >= ROWS else sizes[::-1], list(range(END)), query, *given)


def values_backwards(query: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
    """A kernel that sums values the other way round for few queries."""
    keys = list(range(END))
    return attend_in(list(range(query.shape[-1])), keys if query.shape[2] >= ROWS else keys[::-1], query, *given)


def kept(dtype: torch.dtype, end: int = END) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A query, and keys and values as a cache holds them, with room behind them."""
    room = torch.zeros(1, 2, 100, SIZE, dtype=dtype)
    return torch.zeros(1, 4, 1, SIZE, dtype=dtype), room[:, :, :end], room[:, :, :end]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("kernel", "same"), [(summed, True), (scores_backwards, False), (values_backwards, False)])
def test_attention_that_sums_otherwise_is_asked_for_whole_blocks(
    kernel: Callable[..., torch.Tensor], same: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_rows, "_TRIED", {})
    assert equal_queries(kernel, "plain", ROWS, *kept(dtype)) is same


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [scores_backwards, values_backwards])
def test_random_states_alone_would_pass_it_in_bfloat16(
    kernel: Callable[..., torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_rows, "_TRIED", {})
    monkeypatch.setattr(few_rows, "_cancelling_scores", few_rows._any_states)
    monkeypatch.setattr(few_rows, "_cancelling_values", few_rows._any_states)
    assert equal_queries(kernel, "plain", ROWS, *kept(torch.bfloat16))


@pytest.mark.slow
def test_each_length_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_rows, "_TRIED", {})
    calls = []

    def counted(query: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        calls.append(query.shape)
        return attend(query, *others)

    for end in (ROWS, 3 * ROWS):
        found = equal_queries(counted, "counted", ROWS, *kept(torch.bfloat16, end))
        tried = len(calls)
        assert equal_queries(counted, "counted", ROWS, *kept(torch.bfloat16, end)) is found
        assert len(calls) == tried
    assert len(few_rows._TRIED) == 2
