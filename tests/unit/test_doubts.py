"""The second look: a verifier's own noise excuses what lies within it, and nothing that lies beyond."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from troth.protocol.comparison import judge_states
from troth.protocol.doubts import apart, judge_doubted_tokens, rules_version, under_rules
from troth.protocol.errors import InvalidStates, InvalidTokens
from troth.protocol.market.types import ExecutionClass
from troth.protocol.request import Request
from troth.protocol.scores import (
    NARROW_ROW_FACTOR,
    NOISE_FACTOR,
    PRECISE_ROW_FACTOR,
    ROW_FACTOR,
    independent_rows,
    trace_score,
)
from troth.protocol.types import Hash32

ZERO = Hash32(bytes(32))
FLOAT32 = ExecutionClass(
    ZERO, "float32", 0, False, 10, 8, 9000, 1, 2, 3, 5, 1, 100, 50_000, 8000, 1, 1, 1, 40, 6100, 2000, 1, 1,
    under_rules(ZERO),
)  # fmt: skip
BFLOAT16 = replace(FLOAT32, dtype=1, mantissa_bits=7, steps=7, state_cut=1_700_000)
GENERATOR = np.random.default_rng(21)
REFERENCE = GENERATOR.normal(size=(60, 96)).astype(np.float32)
REQUEST = Request(
    execution_class=ZERO, prompt_tokens=(1, 2), max_tokens=20, temperature_millionths=700_000,
    top_p_millionths=1_000_000, end_tokens=(0,),
)  # fmt: skip
TEXT = [5] * 20


def noisy(strength: float, rows: np.ndarray = REFERENCE) -> np.ndarray:
    return (rows + strength * GENERATOR.normal(size=rows.shape)).astype(np.float32)


def words(rows: np.ndarray) -> np.ndarray:
    return (rows.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def test_a_class_says_by_which_rules_it_judges() -> None:
    data = Hash32(bytes(range(32)))
    assert rules_version(data) == rules_version(ZERO) == 1
    assert [rules_version(under_rules(data, version)) for version in (2, 3, 4, 5)] == [2, 3, 4, 5]
    assert under_rules(data)[4:] == data[:28]


def test_float32_rows_within_the_own_noise_are_excused_and_no_others() -> None:
    """A prompt that makes rounding large makes it large for the verifier's own two runs."""
    claimed, again = noisy(1e-4), noisy(1e-4)
    assert not judge_states(FLOAT32, claimed, REFERENCE).accepted
    assert judge_states(FLOAT32, claimed, REFERENCE, None, again).accepted
    assert not judge_states(FLOAT32, noisy(NOISE_FACTOR * 2e-4), REFERENCE, None, again).accepted
    assert not judge_states(FLOAT32, claimed, REFERENCE, None, noisy(1e-7)).accepted


def test_rows_that_are_nearly_alike_frame_nobody() -> None:
    """One token repeated: the spread over rows is next to nothing, and rounding is what it always is."""
    alike = np.repeat(REFERENCE[:1], 60, axis=0)
    claimed = noisy(1e-6, alike)
    old = replace(FLOAT32, calibration=ZERO, state_cut=280)
    assert not judge_states(old, claimed, alike).accepted
    assert judge_states(FLOAT32, claimed, alike).accepted
    assert not judge_states(FLOAT32, noisy(1e-3, alike), alike).accepted


def test_a_reference_of_zeros_is_the_callers_fault() -> None:
    with pytest.raises(InvalidStates, match="zero"):
        judge_states(FLOAT32, REFERENCE, np.zeros_like(REFERENCE))


def test_noise_of_one_row_excuses_that_row_alone() -> None:
    claimed, again = noisy(1e-7), noisy(1e-7)
    claimed[7], again[7] = claimed[7] + 3e-3, again[7] + 3e-3
    assert not judge_states(FLOAT32, claimed, REFERENCE).accepted
    assert judge_states(FLOAT32, claimed, REFERENCE, None, again).accepted
    claimed[30] += 3e-3
    assert not judge_states(FLOAT32, claimed, REFERENCE, None, again).accepted


def test_one_float32_row_has_little_room_by_the_fourth_rules_and_less_by_the_fifth() -> None:
    """What a node of a middle segment may bend one row by decides which near ties it turns for the last one."""
    bent, size = noisy(1e-7), np.maximum(abs(REFERENCE), np.median(abs(REFERENCE), axis=1, keepdims=True))
    third = replace(FLOAT32, calibration=under_rules(ZERO, 3))
    for version, factor in ((4, PRECISE_ROW_FACTOR), (5, NARROW_ROW_FACTOR)):
        rules = replace(FLOAT32, calibration=under_rules(ZERO, version))
        for cuts, passes in ((0.9 * factor, True), (1.1 * factor, False)):
            bent[31] = REFERENCE[31] + cuts * 4e-5 * size[31]
            found = judge_states(rules, bent, REFERENCE)
            assert (found.accepted, found.cuts < 1) == (passes, passes)
            assert judge_states(third, bent, REFERENCE).accepted
    assert judge_states(FLOAT32, bent, REFERENCE, None, bent).accepted, "noise that the verifier sees as well"
    bent[31] = REFERENCE[31] + 1.1 * ROW_FACTOR * 4e-5 * size[31]
    assert not judge_states(third, bent, REFERENCE).accepted


def test_bfloat16_rows_are_measured_by_the_noisier_own_run() -> None:
    own, claimed, again = words(noisy(0.01)), words(noisy(0.03)), words(noisy(0.03))
    assert not judge_states(BFLOAT16, claimed, own, REFERENCE).accepted
    assert judge_states(BFLOAT16, claimed, own, REFERENCE, again).accepted
    assert not judge_states(BFLOAT16, words(noisy(0.08)), own, REFERENCE, again).accepted


def test_a_row_in_which_the_own_run_happens_to_be_precise_frames_nobody_by_the_fourth_rules() -> None:
    """The hunt's find [16963, 16590, 45077]: a row tipped the other way than for float32 and the verifier's own run."""
    own, claimed = noisy(0.02), noisy(0.02)
    own[11], claimed[11] = REFERENCE[11], REFERENCE[11] + 0.5 * GENERATOR.normal(size=96)
    lucky = words(own), REFERENCE, words(own)
    found = judge_states(BFLOAT16, words(claimed), *lucky)
    assert found.accepted
    third = judge_states(replace(BFLOAT16, calibration=under_rules(ZERO, 3)), words(claimed), *lucky)
    assert (third.accepted, third.worst_position) == (False, 11)
    assert third.mean == found.mean, "windows and means stay as they were"
    claimed[11] = REFERENCE[11] + 2 * GENERATOR.normal(size=96)
    assert not judge_states(BFLOAT16, words(claimed), *lucky).accepted, "a forged row is further away"


def test_rows_that_repeat_themselves_are_one_row_in_bfloat16() -> None:
    """Their noise is the same in every row: a mean over it is as heavy-tailed as a single row."""
    alike = np.repeat(REFERENCE[:1] + 0.001, 60, axis=0) + 1e-4 * REFERENCE
    own = np.repeat(noisy(1.0)[:1], 60, axis=0)
    found = independent_rows(own, alike.astype(np.float32))
    assert (found < 1.5).all()
    spread = independent_rows(noisy(0.01), REFERENCE)
    assert (spread > 10).all()
    assert trace_score(np.full(60, 3.0), 1.7, found).within(1.7)
    assert not trace_score(np.full(60, 3.0), 1.7, spread).within(1.7)
    assert not trace_score(np.full(60, 400.0), 1.7, found).within(1.7)


def test_a_short_trace_must_be_further_away() -> None:
    assert trace_score(np.full(9, 2.5), 1.7, np.array([9.0])).within(1.7)
    assert not trace_score(np.full(32, 2.5), 1.7, np.array([9.0])).within(1.7)
    assert not trace_score(np.full(9, 30.0), 1.7, np.array([9.0])).within(1.7)


@pytest.mark.slow
@given(some.floats(-50, 50), some.integers(33, 80))
def test_a_shift_of_all_logits_is_no_noise(shift: float, vocabulary: int) -> None:
    logits = np.random.default_rng(vocabulary).normal(size=(3, vocabulary))
    assert apart(logits + shift, logits) == pytest.approx(0, abs=1e-9)
    assert (apart(logits + np.linspace(0, 1, vocabulary), logits) > 0.1).all()


def test_the_kindest_judge_counts() -> None:
    """A prompt on which float32 and bfloat16 choose otherwise frames nobody who chooses as the verifier's own run."""
    by_reference, by_own = np.full(20, 1.0), np.zeros(20)
    found = judge_doubted_tokens(np.array([by_reference, by_own]), np.full(20, 0.01), TEXT, REQUEST, 0.02)
    assert (found.accepted, found.told) == (True, True)
    lost = judge_doubted_tokens(np.array([by_reference, by_own + 0.5]), np.full(20, 0.01), TEXT, REQUEST, 0.02)
    assert (lost.accepted, lost.told) == (False, True)


def test_where_noise_is_as_large_nobody_can_tell() -> None:
    lost = np.full((2, 20), 0.5)
    found = judge_doubted_tokens(lost, np.full(20, 0.5 / NOISE_FACTOR), TEXT, REQUEST, 0.02)
    assert (found.accepted, found.told) == (False, False)
    one_quiet_row = np.full(20, 0.5)
    one_quiet_row[3:6] = 0.001
    assert judge_doubted_tokens(lost, one_quiet_row, TEXT, REQUEST, 0.02).told


def test_an_end_in_the_middle_is_no_noise() -> None:
    found = judge_doubted_tokens(np.zeros((2, 20)), np.full(20, 9.0), [*TEXT[:9], 0, *TEXT[10:]], REQUEST, 0.02)
    assert (found.accepted, found.told, found.end_ok) == (False, True, False)


def test_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(InvalidTokens):
        judge_doubted_tokens(np.zeros((2, 20)), np.zeros(19), TEXT, REQUEST, 0.02)
    with pytest.raises(InvalidTokens):
        apart(np.zeros((2, 5)), np.zeros((2, 6)))
