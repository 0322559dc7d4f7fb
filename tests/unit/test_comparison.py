"""Statistics, scores and the judgement of states, with the cheats that a plain mean would let through."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.paper_rules import OFF_CHAIN_RULE, ON_CHAIN_RULE

from troth.protocol.comparison import judge_states
from troth.protocol.errors import InvalidStates
from troth.protocol.market.types import ExecutionClass
from troth.protocol.scores import dimension_spread, rho, trace_score, weighted_rms
from troth.protocol.statistics import PaperStatistics, paper_statistics
from troth.protocol.tensors import Dtype
from troth.protocol.types import Hash32

ZERO = Hash32(bytes(32))
FLOAT32 = ExecutionClass(
    ZERO, "float32", 0, False, 10, 8, 9000, 1, 2, 3, 5, 1, 100, 50_000, 8000, 1, 1, 1, 1000, 20000, 2000, 1, 1, ZERO
)
BFLOAT16 = replace(FLOAT32, dtype=1, mantissa_bits=7, steps=7, theta=6500, state_cut=1_500_000, margin_cut=50000)
EXACT = replace(FLOAT32, exact=True)
GENERATOR = np.random.default_rng(20)
SPREAD = np.exp(GENERATOR.normal(size=576))
REFERENCE = (GENERATOR.normal(size=(640, 576)) * SPREAD).astype(np.float32)


def disturbed(reference: np.ndarray, strength: float, rows: slice = slice(None)) -> np.ndarray:
    changed = reference.copy()
    noise = GENERATOR.normal(size=changed[rows].shape) * SPREAD * strength
    changed[rows] = (changed[rows] + noise).astype(np.float32)
    return changed


def to_bfloat16(rows: np.ndarray) -> np.ndarray:
    bits = rows.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def test_paper_statistics_by_hand() -> None:
    reference = np.array([[1.0, 1.0, 1.0, 4.0]], dtype=np.float32)
    claimed = np.array([[1.0, 1 + 7 / 128, 1 + 8 / 128, 2.0]], dtype=np.float32)
    found = paper_statistics(claimed, reference, Dtype.FLOAT32)
    assert found == PaperStatistics(0.25, 0.0, 2 / 3, ((7 + 8) / 128 - 2) / 4)
    far = np.array([[1.0, 1.0, 1.0, 3.0]], dtype=np.float32)
    assert paper_statistics(far, reference, Dtype.FLOAT32).large_deviation == 1.0


def test_paper_statistics_agree_between_formats() -> None:
    claimed, reference = to_bfloat16(disturbed(REFERENCE, 0.02)), to_bfloat16(REFERENCE)
    widened = [(rows.astype(np.uint32) << 16).view(np.float32) for rows in (claimed, reference)]
    assert paper_statistics(claimed, reference, Dtype.BFLOAT16) == paper_statistics(*widened, Dtype.FLOAT32)


def test_paper_statistics_over_more_rows_than_a_block() -> None:
    rows = GENERATOR.normal(size=(2500, 8)).astype(np.float32)
    claimed = rows.copy()
    claimed[2400] *= 2
    found = paper_statistics(claimed, rows, Dtype.FLOAT32)
    assert found.exponent_mismatch == pytest.approx(1 / 2500)
    assert found.mean_error == pytest.approx(float(rows[2400].astype(np.float64).sum()) / rows.size)


def test_paper_rules_are_the_published_ones() -> None:
    honest = PaperStatistics(0.0, 1.0, 1.0, 0.0)
    assert OFF_CHAIN_RULE.accepts(honest)
    for field, off_chain, on_chain in (
        ("exponent_mismatch", 0.05, 0.08),
        ("large_deviation", 0.75, 0.70),
        ("small_deviation", 0.80, 0.75),
        ("mean_error", 0.0101, 0.0201),
    ):
        assert not OFF_CHAIN_RULE.accepts(replace(honest, **{field: off_chain}))
        assert not ON_CHAIN_RULE.accepts(replace(honest, **{field: on_chain}))
    between = PaperStatistics(0.06, 0.72, 0.78, -0.015)
    assert (OFF_CHAIN_RULE.accepts(between), ON_CHAIN_RULE.accepts(between)) == (False, True)


def test_weighted_rms_by_hand() -> None:
    reference = np.zeros((2, 2))
    claimed = np.array([[3.0, 4.0], [0.0, 0.0]])
    assert weighted_rms(claimed, reference, np.array([3.0, 2.0])).tolist() == [math.sqrt((1 + 4) / 2), 0.0]
    with pytest.raises(InvalidStates):
        weighted_rms(claimed, reference[:1], np.ones(2))


def test_spread_equals_the_standard_deviation_and_never_vanishes() -> None:
    assert np.allclose(dimension_spread(REFERENCE), REFERENCE.astype(np.float64).std(axis=0))
    constant = REFERENCE.copy()
    constant[:, 0] = 5.0
    assert 0 < dimension_spread(constant)[0] < 0.01
    few = REFERENCE[:3]
    assert np.allclose(dimension_spread(few), np.sqrt(np.mean(few.astype(np.float64) ** 2)))
    with pytest.raises(InvalidStates, match="all zero"):
        dimension_spread(np.zeros((9, 4)))


def test_rho_is_one_for_the_noise_of_the_format() -> None:
    low = (to_bfloat16(REFERENCE).astype(np.uint32) << 16).view(np.float32)
    assert np.allclose(rho(low, [low], REFERENCE), 1.0)
    assert np.all(rho(REFERENCE, [low], REFERENCE) == 0)
    assert np.all(np.isfinite(rho(low, [REFERENCE], REFERENCE)))


@pytest.mark.parametrize("strength", [0.0, 1e-6, 5e-4])
def test_honest_float32_is_accepted(strength: float) -> None:
    report = judge_states(FLOAT32, disturbed(REFERENCE, strength), REFERENCE)
    assert report.accepted
    assert report.cut == 0.001
    assert report.statistics is not None
    assert report.statistics.exponent_mismatch < 0.01


@pytest.mark.parametrize(
    ("strength", "rows"),
    [
        (5e-3, slice(None)),
        (0.05, slice(600, None)),
        (0.05, slice(300, 320)),
        (0.37, slice(639, None)),
    ],
    ids=["0.1 % weight change", "int8 in the output after a long honest prompt", "twenty rows", "one forged row"],
)
def test_cheat_in_part_of_a_trace_is_rejected(strength: float, rows: slice) -> None:
    claimed = disturbed(REFERENCE, strength, rows)
    assert not judge_states(FLOAT32, claimed, REFERENCE).accepted
    assert judge_states(FLOAT32, REFERENCE, REFERENCE).accepted


def test_identical_rows_do_not_hide_worse_ones_beside_them() -> None:
    distances = np.zeros(32)
    distances[:12] = 0.015
    assert not trace_score(distances, 0.001).within(0.001)


def test_long_honest_trace_does_not_hide_a_worse_stretch() -> None:
    distances = np.full(640, 1e-6)
    distances[100:140] = 0.015
    found = trace_score(distances, 0.001)
    assert found.score == pytest.approx(0.015)
    assert not found.within(0.001)


def test_worst_row_is_named() -> None:
    report = judge_states(FLOAT32, disturbed(REFERENCE, 0.5, slice(123, 124)), REFERENCE)
    assert (report.accepted, report.worst_position) == (False, 123)


@pytest.mark.parametrize("rows", [1, 7, 8, 33])
def test_short_traces(rows: int) -> None:
    reference = REFERENCE[:rows]
    assert judge_states(FLOAT32, disturbed(reference, 1e-5), reference).accepted
    assert not judge_states(FLOAT32, disturbed(reference, 0.37), reference).accepted


def test_bfloat16_needs_and_uses_the_float32_reference() -> None:
    reference = to_bfloat16(disturbed(REFERENCE, 0.02))
    honest = to_bfloat16(disturbed(REFERENCE, 0.02))
    cheat = to_bfloat16(disturbed(REFERENCE, 0.05))
    assert judge_states(BFLOAT16, honest, reference, REFERENCE).accepted
    report = judge_states(BFLOAT16, cheat, reference, REFERENCE)
    assert not report.accepted
    assert 2 < report.score < 3
    with pytest.raises(InvalidStates, match="float32"):
        judge_states(BFLOAT16, honest, reference)
    with pytest.raises(InvalidStates, match="float32"):
        judge_states(BFLOAT16, honest, reference, REFERENCE[:-1])


def test_exact_class_accepts_equal_bits_only() -> None:
    assert judge_states(EXACT, REFERENCE.copy(), REFERENCE).accepted
    claimed = REFERENCE.copy()
    claimed[17, 5] = np.nextafter(claimed[17, 5], np.float32(np.inf))
    report = judge_states(EXACT, claimed, REFERENCE)
    assert (report.accepted, report.worst_position, report.cut) == (False, 17, 0.0)
    assert report.score == 1 / REFERENCE.size
    zeros = np.zeros((8, 4), dtype=np.float32)
    assert not judge_states(EXACT, -zeros, zeros).accepted


@pytest.mark.parametrize("rules", [FLOAT32, EXACT])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_claim_that_is_not_finite_is_rejected(rules: ExecutionClass, bad: float) -> None:
    claimed = REFERENCE.copy()
    claimed[40, 1] = bad
    report = judge_states(rules, claimed, REFERENCE)
    assert (report.accepted, report.score, report.worst_position) == (False, math.inf, 40)


@pytest.mark.filterwarnings("error")
def test_huge_finite_claims_are_rejected_without_overflow() -> None:
    claimed = np.full_like(REFERENCE, np.finfo(np.float32).max)
    assert not judge_states(FLOAT32, claimed, REFERENCE).accepted


def test_callers_faults_are_errors_not_verdicts() -> None:
    broken = REFERENCE.copy()
    broken[0, 0] = np.nan
    for claimed, reference in (
        (REFERENCE[:-1], REFERENCE),
        (REFERENCE.astype(np.float64), REFERENCE),
        (REFERENCE[0], REFERENCE[0]),
        (REFERENCE[:0], REFERENCE[:0]),
        (REFERENCE, broken),
    ):
        with pytest.raises(InvalidStates):
            judge_states(FLOAT32, claimed, reference)
    with pytest.raises(InvalidStates, match="positive cut"):
        judge_states(replace(FLOAT32, state_cut=0), REFERENCE, REFERENCE)
    with pytest.raises(InvalidStates):
        trace_score(np.array([]), 1.0)
