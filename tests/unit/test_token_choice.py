"""Tokens that are chosen in batches on a device are those of the protocol's rule, whatever the logits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays

torch = pytest.importorskip("torch")

from support.token_choice import RATIOS, SHARES, TEMPERATURES, compared, draws_for, rows_of  # noqa: E402

from troth.node.engine import choice  # noqa: E402
from troth.node.engine.choice import by_the_rule, certain_tokens, choose_tokens, quick_tokens  # noqa: E402
from troth.node.engine.interface import TokenDraw  # noqa: E402
from troth.protocol.errors import InvalidTokens  # noqa: E402
from troth.protocol.tokens import Sampling, noise  # noqa: E402
from troth.protocol.types import Hash32  # noqa: E402

pytestmark = pytest.mark.torch

SEED = Hash32(bytes(range(200, 232)))


@pytest.mark.parametrize("kind", ["text", "wide", "flat", "bfloat16", "equal", "one", "cut"])
def test_tokens_are_those_of_the_rule(kind: str) -> None:
    generator = np.random.default_rng(4)
    for vocabulary in (1, 7, 500, 5_000):
        assert compared(rows_of(kind, 40, vocabulary, generator), draws_for(40, generator)) == 0


# Ties, and numbers that differ by their last bits, are where an order of tokens can go wrong.
close = some.sampled_from([0.0, -0.0, 1e-45, 1e-30, 1.0, 1 + 2**-23, 1 + 2**-22, 2.0, -3.0, 9.0])
samplings = some.builds(
    Sampling, some.sampled_from(TEMPERATURES), some.sampled_from(SHARES), some.sampled_from((0, 1, 2, 3, 7, 70)),
    some.sampled_from(RATIOS),
)  # fmt: skip


@pytest.mark.slow
@given(
    arrays.arrays(np.float32, arrays.array_shapes(min_dims=2, max_dims=2, max_side=60),
                  elements=some.one_of(close, some.floats(-60, 60, width=32))),
    some.lists(samplings, min_size=1, max_size=4),
    some.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_tokens_are_those_of_the_rule_whatever_the_logits(
    rows: np.ndarray, asked: list[Sampling], position: int
) -> None:
    draws = [TokenDraw(asked[row % len(asked)], SEED, (position + row) % 2**32) for row in range(len(rows))]
    assert compared(rows, draws) == 0


@pytest.mark.slow
def test_tokens_of_a_large_vocabulary_are_those_of_the_rule() -> None:
    generator = np.random.default_rng(5)
    assert compared(rows_of("text", 24, 152_064, generator), draws_for(24, generator)) == 0


def test_most_rows_of_a_usual_text_are_certain_without_the_rule() -> None:
    generator = np.random.default_rng(6)
    rows = torch.from_numpy(rows_of("text", 100, 16_000, generator))
    for sampling in (Sampling(0.7, 0.9), Sampling(0.7, 1, 40), Sampling(0.7, 1, 0, 0.05), Sampling(0.7, 0.9, 40, 0.02)):
        usual = [TokenDraw(sampling, SEED, position) for position in range(100)]
        quick, found = quick_tokens(rows, usual), certain_tokens(rows, usual)
        assert sum(token is None for token in quick) <= 20
        assert sum(token is None for token in found) <= 5
        assert all(one in {None, other} for one, other in zip(quick, found, strict=True))


def test_gumbel_over_a_whole_vocabulary_is_chosen_on_the_device() -> None:
    generator = np.random.default_rng(7)
    rows = torch.from_numpy(rows_of("text", 50, 3_000, generator))
    draws = [TokenDraw(Sampling(1.3, 1), SEED, position) for position in range(50)]
    found = certain_tokens(rows, draws)
    assert found == [by_the_rule(row, draw) for row, draw in zip(rows, draws, strict=True)]


@pytest.mark.parametrize("position", [0, 77, 2**32 - 1])
def test_noise_of_single_tokens_is_that_of_the_whole_vocabulary(position: int) -> None:
    tokens = torch.tensor([0, 1, 3, 4, 5, 999, 31_999])
    found = choice._noise(torch.zeros_like(tokens), tokens, [TokenDraw(Sampling(1, 1), SEED, position)])
    np.testing.assert_allclose(found.numpy(), noise(SEED, position, 32_000)[tokens.numpy()], rtol=1e-14)


def test_what_is_not_certain_is_asked_of_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two level tokens is left or not, by the last bit of their mass; that matters where it would win."""
    asked: list[int] = []
    rule = by_the_rule

    def counted(row: torch.Tensor, draw: TokenDraw) -> int:
        asked.append(draw.position)
        return rule(row, draw)

    monkeypatch.setattr(choice, "by_the_rule", counted)
    halves = torch.tensor([[0.0, 0.0, -50.0, -50.0]] * 2)
    wins = [int(noise(SEED, position, 4)[:2].argmax()) for position in range(20)]
    for position, best in enumerate(wins):
        draws = [TokenDraw(Sampling(1, 0.5), SEED, position), TokenDraw(Sampling(1, 0.8), SEED, position)]
        asked.clear()
        assert choose_tokens(halves, draws) == [rule(halves[0], draw) for draw in draws]
        assert asked == [position] * best
    assert set(wins) == {0, 1}


@pytest.mark.parametrize("sampling", [Sampling(0, 1), Sampling(1, 0.9), Sampling(1, 1), Sampling(1, 0.5)], ids=str)
def test_forbidden_tokens_are_never_chosen(sampling: Sampling) -> None:
    generator = np.random.default_rng(8)
    rows = torch.from_numpy(rows_of("wide", 60, 300, generator))
    draws = [TokenDraw(sampling, SEED, position) for position in range(60)]
    allowed = torch.arange(0, 300, 7)
    masked = torch.full_like(rows, float("-inf"))
    masked[:, allowed] = rows[:, allowed]
    masked[0, allowed[1:]] = float("-inf")
    found = choose_tokens(masked, draws)
    assert found[0] == 0
    assert {token % 7 for token in found} == {0}
    with pytest.raises(InvalidTokens):
        choose_tokens(torch.full_like(rows, float("-inf")), draws)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [Sampling(0, 1), Sampling(1, 0.9), Sampling(1, 1)])
def test_logits_that_are_no_numbers_are_refused(broken: float, sampling: Sampling) -> None:
    logits = torch.zeros(2, 10)
    logits[1, 3] = broken
    with pytest.raises(InvalidTokens, match="NaN or infinity"):
        choose_tokens(logits, [TokenDraw(sampling, SEED, position) for position in range(2)])


def test_each_row_has_a_draw() -> None:
    with pytest.raises(InvalidTokens, match="for each draw"):
        choose_tokens(torch.zeros(2, 10), [])
    assert choose_tokens(torch.zeros(0, 10), []) == []
