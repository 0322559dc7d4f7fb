"""What a calibration concludes from long windows: the eighth rules where honest runs leave room, else the fifth."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from troth.node.calibration.conditions import HONEST, SLOW, Condition
from troth.node.calibration.intervals import share
from troth.node.calibration.long_windows import ROOM, LongWindowFindings, look_at_long_windows
from troth.node.calibration.report import long_windows_line
from troth.node.calibration.thresholds import rules_for
from troth.node.calibration.verifying import Measured
from troth.node.errors import ModelError
from troth.node.models.thresholds import LONG, SHIPPED, read_calibration
from troth.protocol.doubts import NEWEST_RULES
from troth.protocol.scores import LONG_MEAN, LONG_WINDOW
from troth.protocol.tensors import Dtype
from troth.protocol.types import Hash32

pytestmark = pytest.mark.torch

NODE, OTHER, CACHE = Condition("decode", HONEST), Condition("eager", HONEST), Condition("int8 cache", SLOW)
RUNS, ROWS = 12, 96
CUT = LONG_MEAN**2 - 1


def measured(means: np.ndarray, *, rows: int = ROWS, weight: float = 1.0, ratio: float = 1.1) -> Measured:
    """Runs in one segment with these means over their worst windows; ``ratio``: rho of all rows at the first look."""
    return {
        "margins": np.zeros((len(means), 8)),
        "distances-0": np.full((len(means), rows), ratio, np.float32),
        "long-means-0": means,
        "long-weights-0": np.full(len(means), weight),
    }


def means_of(centre: float, spread: float = 0.02) -> np.ndarray:
    return centre * np.exp(np.random.default_rng(4).normal(0, spread, RUNS))


def looked_at(other: Measured, cheat: Measured | None = None) -> LongWindowFindings:
    parts = {"decode": [measured(means_of(0.95))], "eager": [other]}
    if cheat is None:
        return look_at_long_windows([NODE, OTHER], parts)
    return look_at_long_windows([NODE, OTHER, CACHE], parts | {"int8 cache": [cheat]})


def at(excess: float) -> np.ndarray:
    """Means of which one lies at so much of the excess at the cut."""
    means = means_of(0.96)
    means[3] = np.sqrt(1 + excess * CUT)
    return means


def test_honest_runs_that_leave_room_have_their_rate_with_its_bound_and_cheats_are_found() -> None:
    found = looked_at(measured(means_of(0.97)), measured(means_of(1.3)))
    assert found.supported
    assert found.refused == share(0, 2 * RUNS)
    assert 0.1 < found.refused.high < 0.15
    assert found.worst < ROOM
    assert found.tail is not None
    assert 0 < found.tail < 1e-9
    assert found.outcomes[2].refused.count == RUNS
    line = long_windows_line(found)
    assert "0 of 24 honest runs, at most 14.25 %" in line.replace("%", " %")
    assert line.endswith("eighth rules.")


def test_runs_that_agree_to_the_last_bit_are_one_run() -> None:
    found = looked_at(measured(means_of(0.95)))
    assert found.refused == share(0, RUNS)
    assert [one.refused.total for one in found.outcomes] == [RUNS, RUNS]


@pytest.mark.parametrize(("excess", "why"), [(0.45, ""), (0.6, "0.60 of the excess"), (1.2, "refuse 1 of 24")])
def test_a_class_whose_honest_runs_need_the_room_says_so_and_gets_the_fifth_rules(excess: float, why: str) -> None:
    found = looked_at(measured(at(excess)))
    assert found.supported == (not why)
    assert why in found.why_not
    honest = [measured(at(excess))]
    assert rules_for(Dtype.BFLOAT16, honest, 1.7, long_windows=found.supported) == (5 if why else NEWEST_RULES)
    if why:
        assert f"fifth rules, since {found.why_not}" in long_windows_line(found)


def test_what_no_verifier_would_look_at_refuses_nobody() -> None:
    """And leaves no room all the same: another run of it may be looked at."""
    found = looked_at(measured(at(1.2), ratio=1.01))
    assert found.refused.count == 0
    assert not found.supported


def test_a_trace_counts_by_its_weight() -> None:
    found = looked_at(measured(at(1.2), weight=0.3))
    assert found.supported
    assert found.worst == pytest.approx(0.36)


def test_the_worst_segment_of_a_run_counts() -> None:
    two = measured(means_of(0.95)) | {
        "distances-1": np.full((RUNS, ROWS), 1.1, np.float32),
        "long-means-1": at(1.2),
        "long-weights-1": np.ones(RUNS),
    }
    found = looked_at(two)
    assert (found.refused.count, found.refused.total) == (1, 2 * RUNS)
    assert found.worst == pytest.approx(1.2)


def test_what_was_not_measured_is_not_granted() -> None:
    bare = {"margins": np.zeros((RUNS, 8)), "distances-0": np.ones((RUNS, ROWS), np.float32)}
    found = looked_at(bare)
    assert found.why_not == "long windows of 'eager' were not measured"
    half = {"decode": [measured(means_of(0.95)), bare]}
    assert look_at_long_windows([NODE], half).why_not == "long windows of 'decode' were not measured"
    assert look_at_long_windows([NODE], {"decode": [bare]}).refused.total == 0
    assert rules_for(Dtype.BFLOAT16, [bare], 1.7) == 5
    short = looked_at(measured(means_of(0.95), rows=LONG_WINDOW - 1))
    assert "63 rows are shorter" in short.why_not


def test_a_report_that_names_the_sixth_rules_has_to_have_measured_them(tmp_path: Path) -> None:
    from importlib.resources import files

    from troth.node.models import thresholds

    shipped = files(thresholds.__package__ or "").joinpath(SHIPPED, "smollm2-135m-bfloat16.json").read_text()
    report, path = json.loads(shipped), tmp_path / "report.json"
    model = Hash32(bytes.fromhex(report["model"][2:]))
    for windows, rules, refused in (({}, 6, True), ({"supported": False}, 6, True), ({}, 5, False),
                                    ({"supported": True}, 6, False)):  # fmt: skip
        path.write_text(json.dumps(report | {"rules": rules, LONG: windows}))
        if refused:
            with pytest.raises(ModelError, match="did not measure them"):
                read_calibration(path, model, "bfloat16")
        else:
            assert read_calibration(path, model, "bfloat16").rules == rules
