"""Tokens beside the rows that their node signed: heads' rounding is excused, whatever was typed, and nothing else."""

from __future__ import annotations

from functools import partial, reduce
from operator import or_

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from troth.protocol.straying import FAITHFUL, HEAD_STEP, HEAD_SUM, STRAY, Straying, kinder, strays
from troth.protocol.tensors import Dtype
from troth.protocol.tokens import Sampling, choices, choose, noise
from troth.protocol.types import Hash32

SEED = Hash32(b"s" * 32)
VOCABULARY, TOKENS = 400, 48
PLACES = range(7, 7 + TOKENS)
SAMPLINGS = (
    Sampling(0.0, 1.0), Sampling(0.7, 1.0), Sampling(1.0, 0.9), Sampling(1.5, 0.3), Sampling(0.7, 0.02),
    Sampling(1.0, 1.0, top_k=3), Sampling(1.0, 0.9, min_p=0.2),
)  # fmt: skip


def rounded(logits: np.ndarray) -> np.ndarray:
    """As a bfloat16 head writes them: to the nearest of eight bits."""
    words = logits.astype(np.float32).view(np.uint32)
    return ((words + 0x7FFF + (words >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def logits_of(seed: int, scale: float = 12.0) -> np.ndarray:
    """Logits as trained models have them: a few contend, often within a rounding of each other."""
    draw = np.random.default_rng(seed)
    found = draw.normal(size=(TOKENS, VOCABULARY)) * scale / 4
    found[:, :4] = scale + 0.05 * draw.normal(size=(TOKENS, 4))
    return found.astype(np.float32)


def seen(heads: list[np.ndarray], text: list[int], sampling: Sampling, dtype: Dtype = Dtype.BFLOAT16) -> Straying:
    """By the kinder head in every row, as verifiers judge it."""
    by_heads = [strays(one, text, sampling, dtype=dtype, seed=SEED, positions=PLACES) for one in heads]
    return reduce(or_, (reduce(kinder, one) for one in zip(*by_heads, strict=True)), FAITHFUL)


@pytest.mark.slow
@settings(max_examples=60)
@given(some.integers(0, 10**6), some.sampled_from(SAMPLINGS), some.sampled_from([4.0, 12.0, 40.0]))
def test_no_rounding_of_a_head_makes_an_honest_token_stray(seed: int, sampling: Sampling, scale: float) -> None:
    """A node's sums go in another order than the verifier's: before rounding its logits differ in the last bits."""
    exact = logits_of(seed, scale)
    jitter = np.random.default_rng(seed + 1).uniform(-1e-4, 1e-4, size=exact.shape)
    text = choices(rounded((exact + jitter).astype(np.float32)), sampling, seed=SEED, first_position=PLACES[0])
    found = seen([rounded(exact), exact], text, sampling)
    assert not found.beyond
    precise = choices((exact + jitter).astype(np.float32), sampling, seed=SEED, first_position=PLACES[0])
    assert not seen([rounded(exact), exact], precise, sampling).beyond, "a node whose head rounds nothing"
    assert not seen([exact], precise, sampling, Dtype.FLOAT32).beyond
    cut = ((exact + jitter).astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    otherwise = choices(cut, sampling, seed=SEED, first_position=PLACES[0])
    assert not seen([rounded(exact), exact], otherwise, sampling).beyond, "one that rounds towards zero"


@pytest.mark.parametrize("sampling", [Sampling(0.0, 1.0), Sampling(0.7, 1.0)], ids=str)
def test_a_lenient_token_strays_and_a_forged_one_is_beyond_all_rounding(sampling: Sampling) -> None:
    exact = logits_of(3)
    low = rounded(exact)
    honest = choices(low, sampling, seed=SEED, first_position=PLACES[0])
    assert not seen([low, exact], honest, sampling).counts
    lenient, forged = list(honest), list(honest)
    for index, position in enumerate(PLACES):
        gumbel = noise(SEED, position, VOCABULARY) if sampling.temperature else np.zeros(VOCABULARY)
        scores = exact[index] + sampling.temperature * gumbel
        lost = scores.max() - scores
        near = np.flatnonzero((lost > 2 * STRAY) & (lost < 0.09))
        far = np.flatnonzero(lost > 2 * HEAD_STEP * np.abs(exact[index]).max() + 2 * HEAD_SUM)
        if len(near):
            lenient[index] = int(near[0])
        forged[index] = int(far[0])
    found = seen([exact, exact], lenient, sampling)
    assert (found.counts, found.beyond) == (True, False)
    assert seen([low, exact], forged, sampling).beyond
    one = [*honest[:9], forged[9], *honest[10:]]
    assert seen([low, exact], one, sampling).beyond, "a single one is enough"


def test_the_kinder_head_counts_in_every_row() -> None:
    """Two logits that rounding makes equal: the lower id wins, and loses what was rounded away."""
    exact = np.full((1, 8), -5.0, np.float32)
    exact[0, 3], exact[0, 6] = 12.0, 12.03
    assert choose(rounded(exact)[0], Sampling(0.0, 1.0), None) == 3
    told = partial(strays, sampling=Sampling(0.0, 1.0), dtype=Dtype.BFLOAT16, seed=SEED, positions=[0])
    for token, by_class, by_other in ((3, 0.0, 0.03), (6, 0.0, 0.0)):
        (first,), (second,) = told(rounded(exact), [token]), told(exact, [token])
        assert (first.worst, second.worst) == (pytest.approx(by_class, abs=1e-5), pytest.approx(by_other, abs=1e-5))
        assert kinder(first, second) == kinder(second, first) == FAITHFUL
