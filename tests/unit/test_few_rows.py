"""Fewer rows than a block are used where they are seen to have its bits, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from troth.node.engine import few_rows  # noqa: E402
from troth.node.engine.few_rows import FEWER, FixedProduct, few_queries  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, WIDTH = 16, 24


class Counted:
    """Remembers with how many rows it was called."""

    def __init__(self, product: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.product = product
        self.counts: list[int] = []

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        self.counts.append(states.shape[-2])
        return self.product(states)


def doubled(states: torch.Tensor) -> torch.Tensor:
    return states * 2


def by_count(least: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A library that sums in another order below so many rows: the last bit differs."""
    return lambda states: states * 2 if states.shape[-2] >= least else torch.nextafter(states * 2, states * 3)


def by_place(states: torch.Tensor) -> torch.Tensor:
    """A library whose rows depend on where they stand among the others."""
    return states * torch.arange(1, states.shape[-2] + 1)[:, None]


def by_size(states: torch.Tensor) -> torch.Tensor:
    """A library that goes another way for large numbers, if there are few rows."""
    large = states.abs().max() > 20 and states.shape[-2] < ROWS
    return states * 2 + (1e-3 if large else 0.0)


@pytest.mark.parametrize(
    ("product", "count", "used"),
    [
        (doubled, 1, 4),
        (doubled, 4, 4),
        (doubled, 5, 8),
        (doubled, 9, ROWS),
        (by_count(5), 1, 8),
        (by_count(9), 1, ROWS),
        (by_place, 1, ROWS),
        (by_size, 2, ROWS),
    ],
)
def test_the_fewest_rows_that_have_the_bits_of_a_block(
    product: Callable[[torch.Tensor], torch.Tensor], count: int, used: int
) -> None:
    counted = Counted(product)
    fixed = FixedProduct(counted, ROWS)
    states = torch.randn(count, WIDTH)
    fixed(states)
    counted.counts.clear()
    made = fixed(states)
    assert counted.counts == [used]
    assert made.shape == states.shape
    whole = torch.cat([states, states[-1:].expand(ROWS - count, WIDTH)])
    assert torch.equal(made, product(whole)[:count])


def test_products_are_tried_once_and_only_where_few_rows_come() -> None:
    counted = Counted(doubled)
    fixed = FixedProduct(counted, ROWS)
    fixed(torch.randn(3 * ROWS + 1, WIDTH))
    assert set(counted.counts) == {ROWS}
    fixed(torch.randn(1, WIDTH))
    tried = len(counted.counts)
    fixed(torch.randn(2, WIDTH))
    assert len(counted.counts) == tried + 1


def test_a_mixture_is_not_tried() -> None:
    counted = Counted(doubled)
    FixedProduct(counted, ROWS, tries=False)(torch.randn(1, WIDTH))
    assert counted.counts == [ROWS]


def test_bfloat16_hides_what_a_trial_looks_for() -> None:
    counted = Counted(doubled)
    FixedProduct(counted, ROWS)(torch.randn(1, WIDTH).bfloat16())
    assert counted.counts == [ROWS]
    query, key = torch.randn(1, 4, 1, 8).bfloat16(), torch.randn(1, 2, 30, 8).bfloat16()
    assert few_queries(attend, "bfloat16", ROWS, query, key, key) == ROWS


def test_several_sequences_at_once_go_in_blocks() -> None:
    counted = Counted(doubled)
    FixedProduct(counted, ROWS)(torch.randn(2, 1, WIDTH))
    assert counted.counts == [ROWS]


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)


def attends_otherwise(few: int, keys: int) -> Callable[..., torch.Tensor]:
    """A kernel that goes another way for few queries, if there are many keys."""

    def otherwise(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        made = attend(query, key, value, mask)
        return made if query.shape[2] > few or key.shape[2] < keys else torch.nextafter(made, made + 1)

    return otherwise


@pytest.mark.parametrize("keys", [ROWS, 500, 1_000])
def test_attention_that_differs_is_asked_for_whole_blocks(keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_rows, "_TRIED", {})
    query, key = torch.randn(1, 4, 1, 8), torch.randn(1, 2, 30, 8)
    assert few_queries(attends_otherwise(FEWER[0], keys), "differs", ROWS, query, key, key) == ROWS
    same = Counted(lambda states: states)

    def counted(query: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        same(query)
        return attend(query, *others)

    few = few_queries(counted, "same", ROWS, query, key, key)
    assert few in (FEWER[0], ROWS)
    tried = len(same.counts)
    assert few_queries(counted, "same", ROWS, query, key, key) == few
    assert len(same.counts) == tried
