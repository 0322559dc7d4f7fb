"""Thresholds of a class as a calibration found them: read from its report, or from those that ship with Troth.

How runs are compared until a calibration says better: thresholds from the SmolLM2-135M measurements.

float32 decodes within 1e-6 weighted RMS of its own prefill and int8 weights are at 4.5e-2, so that a cut of 1e-3 has
three orders of room on one side and one on the other. bfloat16 compares noise ratios (cut 1.5). Of a bfloat16 tile 30 %
must agree: another engine's has 57 % at least there, and of weights of four bits 11 % at most (docs/adr/0060).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypedDict

from troth.node.errors import ModelError
from troth.protocol.doubts import SIXTH_RULES, under_rules
from troth.protocol.market.types import ExecutionClass
from troth.protocol.types import Hash32

LONG = "long_windows"
"""The part of a bfloat16 report that says what honest runs need over long windows."""
SHIPPED = "calibrations"
"""Folder beside this module with a report for each calibrated model and dtype."""


@dataclass(frozen=True, slots=True)
class TileRule:
    """The contract's test: mantissa ``bits``, ``steps``, ``theta`` in basis points, and how far it is from both sides.

    ``honest`` is the share that nearly all honest tiles reach, ``cheating`` the one that nearly all cheats' tiles stay
    below.
    """

    bits: int
    steps: int
    theta: int
    honest: float
    cheating: float

    @property
    def gap(self) -> float:
        """How far honest tiles are above cheats'; below 0 where one tile alone cannot tell them."""
        return self.honest - self.cheating


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What goes into the execution class; cuts in the units of `ExecutionClass` (millionths), ``tiles`` an opening."""

    state_cut: int
    margin_cut: int
    tile: TileRule
    tiles: int = 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """Thresholds, the hash of the measurements behind them, where the report lies, and by which ``rules`` it judges:
    see `troth.protocol.doubts`."""

    thresholds: Thresholds
    data: Hash32
    source: str
    rules: int = 1

    def apply(self, execution_class: ExecutionClass) -> ExecutionClass:
        """The class with these thresholds."""
        return replace(
            execution_class,
            mantissa_bits=self.thresholds.tile.bits,
            steps=self.thresholds.tile.steps,
            theta=self.thresholds.tile.theta,
            tiles=self.thresholds.tiles,
            state_cut=self.thresholds.state_cut,
            margin_cut=self.thresholds.margin_cut,
            calibration=under_rules(self.data, self.rules),
        )


def read_calibration(path: Path, model: Hash32, dtype: str) -> Calibration:
    """The calibration in a report.

    Raises:
        ModelError: not a report, one of another model or dtype, or one that lets a bfloat16 class judge long windows
            which were not measured.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        found, about = _parse(report, str(path)), (str(report["model"]), str(report["dtype"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError("no calibration report", str(path), "Give the report.json of `troth calibrate`.") from error
    if about != ("0x" + model.hex(), dtype):
        raise ModelError("the calibration is of another model or dtype", about, "Calibrate this one.")
    if dtype == "bfloat16" and found.rules >= SIXTH_RULES and not report.get(LONG, {}).get("supported"):
        what = "the calibration names rules that judge long windows, and did not measure them"
        raise ModelError(what, found.rules, "Run `troth calibrate` again with the same --out: it adds what is missing.")
    return found


def shipped_calibration(model: Hash32, dtype: str) -> Calibration | None:
    """The calibration that ships with Troth for a model, None if there is none."""
    for entry in files(__package__).joinpath(SHIPPED).iterdir():
        report = json.loads(entry.read_text(encoding="utf-8"))
        if (report["model"], report["dtype"]) == ("0x" + model.hex(), dtype):
            return _parse(report, entry.name)
    return None


def _parse(report: dict[str, Any], source: str) -> Calibration:
    found = report["thresholds"]
    tile = TileRule(*(found[name] for name in ("mantissa_bits", "steps", "theta", "honest", "cheating")))
    thresholds = Thresholds(int(found["state_cut"]), int(found["margin_cut"]), tile, int(found["tiles"]))
    return Calibration(
        thresholds, Hash32(bytes.fromhex(report["data"].removeprefix("0x"))), source, int(report.get("rules", 1))
    )


class Comparison(TypedDict):
    """The fields of a tolerant execution class that say how runs are compared."""

    exact: bool
    mantissa_bits: int
    steps: int
    theta: int
    tiles: int
    state_cut: int
    margin_cut: int


def rough_comparison(dtype: int) -> Comparison:
    """That of a model served by the torch engine, for the number of its dtype."""
    single = dtype == 0
    return Comparison(
        exact=False,
        mantissa_bits=10 if single else 7,
        steps=8 if single else 10,
        theta=9_000 if single else 3_000,
        tiles=1,
        state_cut=1_000 if single else 1_500_000,
        margin_cut=20_000 if single else 50_000,
    )
