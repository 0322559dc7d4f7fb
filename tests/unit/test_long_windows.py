"""The sixth rules: over long windows a bfloat16 trace is no further from float32 than the verifier's own runs are."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from troth.node.judging.verdicts import Judgement
from troth.protocol.comparison import StateReport, judge_states
from troth.protocol.doubts import under_rules
from troth.protocol.findings import LOOKED_AT
from troth.protocol.scores import LONG_MEAN, LONG_WINDOW, long_windows
from troth.protocol.straying import Straying
from troth.protocol.tokens import TokenReport
from troth.protocol.types import ZERO_HASH

ROWS, COLUMNS, NOISE = 96, 256, 0.02
DRAW = np.random.default_rng(11)
HIGH = DRAW.normal(size=(ROWS, COLUMNS)).astype(np.float32)
RULES: Any = SimpleNamespace(dtype=1, exact=False, state_cut=1_720_000, calibration=under_rules(ZERO_HASH))


def run(size: float = 1.0, rows: slice = slice(None)) -> np.ndarray:
    """A run with so many times the noise of others in some rows."""
    sizes = np.ones((ROWS, 1))
    sizes[rows] = size
    return (HIGH + NOISE * sizes * DRAW.normal(size=HIGH.shape)).astype(np.float32)


def words(rows: np.ndarray) -> np.ndarray:
    return (rows.view(np.uint32) >> 16).astype(np.uint16)


def judged(claimed: np.ndarray, otherwise: float = 1.0) -> StateReport:
    """By three runs of one's own, the last of which has so many times the noise."""
    return judge_states(RULES, words(claimed), words(run()), HIGH, words(run()), otherwise=words(run(otherwise)))


def test_twice_the_excess_is_twice_as_much_lost_beside_rounding() -> None:
    own = [run(), run()]
    assert long_windows(run(), own, run(), HIGH).excess < 0.1
    # The largest noise of three runs is a little more than that of one.
    found = [long_windows(run(np.sqrt(1 + lost)), own, run(), HIGH).excess for lost in (0.3, 0.6)]
    assert found[0] < found[1]
    assert (found[1] - found[0]) * (LONG_MEAN**2 - 1) == pytest.approx(0.3, rel=0.2)


def test_what_no_window_of_thirty_two_rows_shows_is_refused_over_long_ones() -> None:
    slow = run(1.45)
    by_windows = judge_states(RULES, words(slow), words(run()), HIGH)
    assert by_windows.accepted
    assert by_windows.mean > LOOKED_AT
    found = judged(slow)
    assert not found.accepted
    assert found.score < found.cut
    assert found.cuts == found.excess > 2
    assert found.held < 1, "a court counts what windows of 32 rows show"
    judgement = Judgement(root_matches=True, states=found, tokens=None)
    assert judgement.refused
    assert not judgement.for_a_court
    wrong = Judgement(root_matches=True, states=judge_states(RULES, words(run(3)), words(run()), HIGH), tokens=None)
    assert wrong.for_a_court
    assert judged(run()).accepted


def test_a_cheat_that_computes_its_prompt_truly_does_not_drown_in_it() -> None:
    found = judged(run(1.35, slice(ROWS - LONG_WINDOW, ROWS)))
    assert found.mean < 1.25
    assert not found.accepted


def test_noise_that_one_of_the_own_runs_has_as_well_excuses() -> None:
    """A prompt that makes other attention noisy makes the verifier's own other attention noisy."""
    assert judged(run(1.5), 1.5).accepted
    assert not judged(run(1.5)).accepted


def test_where_noise_hangs_on_how_attention_is_computed_a_third_kind_may_have_more() -> None:
    """A prompt in one language was such: a softmax in bfloat16 was 1.23 times as far as the furthest own run."""
    assert not judged(run(1.3)).accepted
    assert judged(run(1.3 * 1.2), 1.3).accepted
    assert judged(run(1.3), 1 / 1.25).accepted, "in either direction"


def test_few_rows_and_rows_that_repeat_themselves_count_by_less() -> None:
    own, other, slow = [run(), run()], run(), run(1.3)
    short = long_windows(slow[:16], [one[:16] for one in own], other[:16], HIGH[:16]).excess
    assert short < long_windows(slow, own, other, HIGH).excess / 3
    same = HIGH + np.repeat(NOISE * DRAW.normal(size=(1, COLUMNS)), ROWS, axis=0)
    twice = HIGH + 1.3 * (same - HIGH)
    alike = same.astype(np.float32)
    assert long_windows(twice.astype(np.float32), [alike, alike], alike, HIGH).excess < 0.3 * (
        (1.3**2 - 1) / (LONG_MEAN**2 - 1)
    )


def test_a_text_that_is_refused_besides_is_no_evidence_of_long_windows() -> None:
    """It may have been made to frame: of an answer that is refused anyway nothing is gathered."""
    states = StateReport(1.2, 1.72, False, 1.3, 0, None, 1.2, excess=1.5)
    lie = TokenReport(0.5, 0.02, 0.5, 0, True, False, 2.0)
    assert Judgement(root_matches=True, states=states, tokens=None).by_long_windows
    assert not Judgement(root_matches=True, states=states, tokens=lie).by_long_windows
    assert not Judgement(root_matches=True, states=states, tokens=None, straying=Straying(0.4, True)).by_long_windows
    assert not Judgement(root_matches=False, states=states, tokens=None).by_long_windows


@pytest.mark.parametrize(
    ("excess", "staked", "brought"), [(1.5, True, False), (2.5, True, True), (2.5, False, False), (0.5, True, False)]
)
def test_a_court_is_asked_where_it_takes_stake(excess: float, staked: bool, brought: bool) -> None:
    """Between the cuts a case costs its opener what the seats are paid."""
    states = StateReport(1.2, 1.72, excess <= 1, 1.3, 0, None, 1.2, excess=excess, staked=staked)
    judgement = Judgement(root_matches=True, states=states, tokens=None, second_cut=2.0)
    assert judgement.for_a_court == brought
    assert judgement.by_long_windows == (excess > 1)
    assert states.held == pytest.approx(max(excess, 1.2 / 1.72) if staked else 1.2 / 1.72)
    assert replace(judgement, states=replace(states, score=3.0, accepted=False)).for_a_court
