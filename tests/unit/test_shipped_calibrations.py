"""The calibrations that ship: whole, of one model, and what they say of honest runs and cheats."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest

from troth.node.models import thresholds
from troth.node.models.execution_class import rough_class
from troth.node.models.thresholds import SHIPPED, shipped_calibration
from troth.protocol.doubts import rules_version, under_rules
from troth.protocol.types import Hash32

FOLDER = files(thresholds.__package__ or "").joinpath(SHIPPED)
NAMES = sorted(entry.name.removesuffix(".json") for entry in FOLDER.iterdir())
REPORTS = [json.loads(FOLDER.joinpath(f"{name}.json").read_text()) for name in NAMES]

MISSED = {
    ("gemma3-270m-bfloat16", "greedy instead of sampled"): 3,
    ("gemma3-270m-bfloat16", "wrong seed"): 1,
    ("gemma3-270m-bfloat16", "temperature half as high"): 4,
}
"""Lies that change so little of a text that a class is known to miss them (docs/explanation/calibration.md)."""


def model_of(report: dict[str, Any]) -> Hash32:
    return Hash32(bytes.fromhex(report["model"][2:]))


@pytest.mark.parametrize("report", REPORTS, ids=NAMES)
def test_a_shipped_calibration_is_found_and_applied(report: dict[str, Any]) -> None:
    found = shipped_calibration(model_of(report), report["dtype"])
    assert found is not None
    applied = found.apply(rough_class(model_of(report), int(report["dtype"] == "bfloat16"), "name", candidates=2))
    data = Hash32(bytes.fromhex(report["data"][2:]))
    assert applied.calibration == under_rules(data, report.get("rules", 1))
    assert rules_version(applied.calibration) == report.get("rules", 1)
    assert (applied.state_cut, applied.margin_cut, applied.theta, applied.tiles) == tuple(
        report["thresholds"][name] for name in ("state_cut", "margin_cut", "theta", "tiles")
    )


@pytest.mark.parametrize(("name", "report"), zip(NAMES, REPORTS, strict=True), ids=NAMES)
def test_it_refuses_no_honest_run_and_catches_every_cheat(name: str, report: dict[str, Any]) -> None:
    honest = report["honest_tasks_refused"]
    assert (honest["count"], honest["of"] >= 2000, honest["high"] <= 2e-3) == (0, True, True)
    for condition in report["conditions"]:
        caught = condition["caught"]
        if condition["kind"] in {"cheat", "text"}:
            missed = MISSED.get((name, condition["name"]), 0)
            assert caught["count"] == caught["of"] - missed, condition["name"]


def test_another_model_has_none() -> None:
    assert shipped_calibration(Hash32(bytes(32)), "bfloat16") is None
