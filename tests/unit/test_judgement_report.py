"""What a verifier's log says of a judgement, for the operator who wonders about it."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from troth.node.judging.verdicts import Judgement, report
from troth.protocol.comparison import judge_hashes, judge_states
from troth.protocol.types import ZERO_HASH

ROWS = np.random.default_rng(5).normal(size=(40, 48)).astype(np.float32)
RULES = SimpleNamespace(dtype=0, exact=False, state_cut=25, calibration=ZERO_HASH)


def test_the_papers_four_statistics_stand_beside_every_verdict_over_rows(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    away = (ROWS + np.random.default_rng(6).normal(size=ROWS.shape)).astype(np.float32)
    states = judge_states(RULES, away, ROWS)
    report(Judgement(root_matches=True, states=states, tokens=None))
    shown = states.statistics
    assert shown is not None
    assert 0 < shown.exponent_mismatch < 1
    assert f"exponents differ {shown.exponent_mismatch:.3g}" in caplog.text
    assert f"of them by much {shown.large_deviation:.3g}" in caplog.text
    assert f"of the rest by little {shown.small_deviation:.3g}" in caplog.text
    assert f"mean error {shown.mean_error:.3g}" in caplog.text


def test_where_hashes_were_compared_there_are_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    report(Judgement(root_matches=True, states=judge_hashes([b"a"], [b"a"]), tokens=None))
    assert "compared: verdict accept" in caplog.text
    assert "exponents" not in caplog.text
