"""What one task says: nothing of what a client could choose, and no more than an honest node may have on average.

These are the findings of verifiers over many tasks; those of the audit are tested in test_market_audit.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from troth.protocol.comparison import StateReport
from troth.protocol.findings import (
    HONEST_SHARE,
    LEAST_LOST,
    LEAST_TEMPERATURE,
    LOST_LOGITS,
    MEAN_RATIO,
    of_precise_text,
    of_states,
    of_text,
)
from troth.protocol.scores import LEAST_RATIO, mean_ratio
from troth.protocol.tokens import Sampling, TokenReport

SAMPLED = Sampling(1.0, 1.0)


def states(mean: float) -> StateReport:
    return StateReport(1.0, 1.7, True, 1.0, 0, None, mean)


def text(worst: float) -> TokenReport:
    return TokenReport(0.001, 0.02, 0.001, 60, True, True, worst)


def test_a_trace_counts_by_its_mean_noise() -> None:
    assert of_states(states(MEAN_RATIO)).value == 0
    assert of_states(states(MEAN_RATIO + 0.001)).value == 1


def test_a_precise_text_counts_by_its_worst_token() -> None:
    assert of_precise_text(text(LOST_LOGITS)).value == 0
    assert of_precise_text(text(LOST_LOGITS + 1e-4)).value == 1


def test_a_client_that_can_foresee_the_noise_decides_nothing() -> None:
    assert of_text(Sampling(0.0, 1.0), lost=5.0, own=0.0, noise=1.0) is None
    assert of_text(Sampling(LEAST_TEMPERATURE - 0.01, 1.0), lost=5.0, own=0.0, noise=1.0) is None
    assert of_text(SAMPLED, lost=LEAST_LOST / 3, own=0.0, noise=1.0) is None
    # OpenAI's top_p of 0 at a temperature of 1: the likeliest token, as at temperature 0.
    assert of_text(Sampling(1.0, 1e-6), lost=5.0, own=0.0, noise=1.0) is None
    assert of_text(Sampling(1.0, 0.5), lost=5.0, own=0.0, noise=1.0) is None
    assert of_text(Sampling(1.0, 0.7), lost=5.0, own=0.0, noise=1.0) is not None


@given(some.floats(0, 100), some.floats(LEAST_LOST, 100))
def test_noise_that_both_share_counts_a_half(lost: float, own: float) -> None:
    """Whatever the prompts are: as often as the node loses more, the verifier does."""
    mine, yours = of_text(SAMPLED, lost=lost, own=own, noise=1.0), of_text(SAMPLED, lost=own, own=lost, noise=1.0)
    assert mine is not None
    assert yours is not None
    assert mine.value + yours.value == pytest.approx(1)
    assert mine.honest == HONEST_SHARE > 0.5


@given(some.floats(0, 100), some.floats(LEAST_LOST, 100), some.floats(1, 10))
def test_rows_that_a_prompt_makes_noisier_are_granted_as_much(lost: float, own: float, noise: float) -> None:
    """A node whose rows are twice as noisy loses twice as much: that is what its states were judged for."""
    mine = of_text(SAMPLED, lost=noise * lost, own=own, noise=noise)
    yours = of_text(SAMPLED, lost=lost, own=own, noise=1.0)
    assert mine is not None
    assert yours is not None
    assert mine.value == pytest.approx(yours.value)
    # Rows nearer to float32 than the verifier's earn nothing: who computes them precisely could lie about texts.
    assert of_text(SAMPLED, lost=lost, own=own, noise=1 / noise) == yours


def test_rows_computed_precisely_do_not_make_up_for_the_others() -> None:
    ratios = np.full(100, 1.3)
    ratios[:10] = 1e-6
    assert mean_ratio(ratios) == pytest.approx(np.exp(0.9 * np.log(1.3) + 0.1 * np.log(LEAST_RATIO)))
    assert mean_ratio(ratios) > MEAN_RATIO
