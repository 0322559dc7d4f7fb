"""Thresholds are made from numbers alone: these tests need no model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from troth.node.calibration.conditions import all_conditions
from troth.node.calibration.findings import _told_by_tiles
from troth.node.calibration.intervals import share
from troth.node.calibration.measurements import MeasurementFiles
from troth.node.calibration.report import Strip, strips
from troth.node.calibration.thresholds import (
    LEAST_MARGIN,
    NEAR,
    OVERLAP,
    between,
    choose_tile_rule,
    least_cut,
    margin_cut,
    margin_cuts,
    near,
    rules_for,
    state_cuts,
)
from troth.node.calibration.verifying import RULES
from troth.node.errors import ModelError, NodeStorageError
from troth.protocol.doubts import NEWEST_RULES
from troth.protocol.scores import NARROW_ROW_FACTOR, trace_score
from troth.protocol.tensors import Dtype

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    [(0, 2000, 0.0, 0.001843), (5, 100, 0.016432, 0.112835), (10, 10, 0.691503, 1.0), (0, 1, 0.0, 0.975)],
)
def test_intervals_are_those_of_clopper_and_pearson(count: int, total: int, low: float, high: float) -> None:
    found = share(count, total)
    assert found.low == pytest.approx(low, abs=2e-6)
    assert found.high == pytest.approx(high, abs=2e-6)


def test_the_least_cut_is_where_a_trace_begins_to_pass() -> None:
    distances = np.random.default_rng(1).lognormal(-5, 1, 90).astype(np.float32)
    cut = least_cut(distances)
    assert trace_score(distances.astype(np.float64), cut).within(cut)
    assert not trace_score(distances.astype(np.float64), cut * 0.998).within(cut * 0.998)


def test_a_cut_lies_between_honest_runs_and_cheats() -> None:
    cut = between(np.array([1e-6, 1e-5]), np.full(9, 1e-3))
    assert cut == pytest.approx(1e-4, rel=0.01)
    overlapping = between(np.array([1.0, 2.0]), np.array([1.5, 3.0]))
    assert overlapping == pytest.approx(2.0 * OVERLAP), "no honest run is refused to catch one more cheat"
    assert not (np.array([1.0, 2.0]) > overlapping).any(), "a cut that rejects nobody honest"


def test_cuts_of_shorter_texts_leave_out_the_rows_behind_them() -> None:
    rows, tokens = 40, 20
    distances = np.full((1, rows), 1e-6, np.float32)
    distances[0, -1] = 1.0
    part = {
        "distances-0": distances,
        "distances-1": np.full((1, rows), 1e-5, np.float32),
        "margins": np.zeros((1, tokens)),
    }
    ((whole, other),) = state_cuts([part])
    ((short, _),) = state_cuts([part], length=10)
    assert whole > 1000 * short
    assert other == pytest.approx(1e-5, rel=0.01)


def test_margins_count_the_worst_window() -> None:
    margins = np.zeros((1, 64), np.float32)
    margins[0, 10:20] = 0.5
    assert margin_cuts([{"margins": margins}])[0] == pytest.approx(5 / 32)
    assert margin_cuts([{"margins": margins}], length=15)[0] == pytest.approx(2.5 / 32)


def test_the_tile_rule_with_the_widest_gap_wins() -> None:
    rules = len(RULES[Dtype.BFLOAT16])
    honest, cheating = np.full((100, rules), 0.8), np.full((100, rules), 0.7)
    cheating[:, 2] = 0.3
    rule = choose_tile_rule(Dtype.BFLOAT16, honest, cheating)
    assert (rule.bits, rule.steps, rule.theta) == (*RULES[Dtype.BFLOAT16][2], 5000), "CLEAR of the cheats"


def test_of_rules_with_a_wide_gap_the_most_tolerant_is_taken_and_theta_stays_near_the_cheats() -> None:
    """In float32: honest tiles as they are on this machine, those of a verifier that computes with half the bits."""
    rules = RULES[Dtype.FLOAT32]
    honest, lazy = np.full((100, len(rules)), 0.97), np.full((100, len(rules)), 0.8)
    for rule, agreeing in (((14, 1), 0.18), ((14, 2), 0.28), ((14, 4), 0.38), ((14, 8), 0.56)):
        lazy[:, rules.index(rule)] = agreeing
    chosen = choose_tile_rule(Dtype.FLOAT32, honest, lazy)
    assert (chosen.bits, chosen.steps, chosen.theta) == (14, 4, 5800)


def test_what_tiles_must_tell_is_beyond_what_another_engine_does() -> None:
    """In bfloat16 int8 and fp8 weights are as far away as an honest node with another engine."""
    told = {
        dtype: {one.name for one in all_conditions(30, dtype) if _told_by_tiles(one, Dtype(dtype))} for dtype in (0, 1)
    }
    assert told[1] == {"W8A8"}
    assert {"int8 weights", "fp8 weights", "float16 weights", "TF32"} <= told[0]


def test_measurements_resume_and_hash_their_contents(tmp_path: Path) -> None:
    kept = MeasurementFiles(tmp_path)
    kept.write("int8 weights", 0, {"margins": np.arange(6).reshape(2, 3)})
    kept.write("int8 weights", 1, {"margins": np.zeros((1, 3))})
    assert kept.has("int8 weights", 1)
    assert not kept.has("int8 weights", 2)
    assert [part["margins"].shape for part in kept.read("int8 weights")] == [(2, 3), (1, 3)]
    before = kept.digest()
    kept.write("int8 weights", 1, {"margins": np.zeros((1, 3))})
    assert kept.digest() == before
    kept.write("int8 weights", 1, {"margins": np.ones((1, 3))})
    assert kept.digest() != before


def test_a_damaged_measurement_is_named(tmp_path: Path) -> None:
    kept = MeasurementFiles(tmp_path)
    kept.write("honest", 0, {"margins": np.zeros(3)})
    path = next(tmp_path.glob("*.npz"))
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(NodeStorageError, match="cannot be read"):
        kept.read("honest")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    kept = MeasurementFiles(tmp_path)
    np.savez(tmp_path / "honest.00.npz", margins=np.array([{"a": 1}], dtype=object))
    with pytest.raises(NodeStorageError):
        kept.read("honest")


def test_strips_show_every_run_and_the_cut() -> None:
    drawn = strips([Strip("a & b", "honest", np.array([1e-6, 2e-6, 0.0]))], 1e-3, "axis")
    assert drawn.count("<circle") == 3
    assert "a &amp; b" in drawn
    assert "cut 0.001" in drawn


def test_a_float32_cut_is_near_the_honest_runs_and_never_beyond_the_middle() -> None:
    honest, cheating = np.array([1e-6, 2e-6]), np.array([1e-2])
    assert near(honest, cheating) == pytest.approx(NEAR * 2e-6)
    assert near(honest, np.array([3e-6])) == between(honest, np.array([3e-6]))


def test_a_float32_text_is_granted_no_more_than_honest_ones_need() -> None:
    """Lies that lose little then fall by themselves; bfloat16 texts need the room between."""
    honest, lies = np.zeros(9), np.full(9, 0.04)
    assert margin_cut(Dtype.FLOAT32, honest, lies) == LEAST_MARGIN
    assert margin_cut(Dtype.FLOAT32, honest + 0.003, lies) == pytest.approx(OVERLAP * 0.003)
    assert margin_cut(Dtype.FLOAT32, honest, np.full(9, LEAST_MARGIN / 4)) == LEAST_MARGIN
    assert margin_cut(Dtype.BFLOAT16, honest, lies) == between(honest + LEAST_MARGIN, lies)


def test_a_class_whose_honest_runs_are_noisier_keeps_the_first_rules() -> None:
    quiet = {"margins": np.zeros((1, 4)), "distances-0": np.full((1, 9), 1.05)}
    assert rules_for(Dtype.BFLOAT16, [quiet], 1.7, long_windows=True) == NEWEST_RULES
    assert rules_for(Dtype.FLOAT32, [quiet], 1.7) == NEWEST_RULES
    assert rules_for(Dtype.BFLOAT16, [quiet, quiet | {"distances-0": np.full((1, 9), 1.3)}], 1.7) == 1
    with pytest.raises(ModelError, match="loses more"):
        rules_for(Dtype.FLOAT32, [quiet | {"margins": np.full((1, 4), 0.02)}], 1.7)


def test_a_class_whose_honest_rows_need_more_room_keeps_the_third_rules() -> None:
    cut = 2.5e-5
    row = {"margins": np.zeros((1, 4)), "distances-0": np.array([[1e-6, 0.9 * NARROW_ROW_FACTOR / 4 * cut]])}
    assert rules_for(Dtype.FLOAT32, [row], cut) == NEWEST_RULES
    row["distances-0"][0, 1] = 1.1 * NARROW_ROW_FACTOR / 4 * cut
    assert rules_for(Dtype.FLOAT32, [row], cut) == 3
