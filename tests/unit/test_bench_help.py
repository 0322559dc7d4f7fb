"""`scripts/bench NAME --help` shows what NAME measures, and its options."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.figures import Figure

pytestmark = pytest.mark.slow  # it imports every benchmark
BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
PROGRAM: dict[str, Any] = runpy.run_path(str(BENCH))
OPTIONS = {"market": "--questions", "forwarding": "--machine", "exact": "--cheats", "models": "--root"}


@pytest.mark.parametrize("name", sorted((*PROGRAM["NAMES"], *PROGRAM["RESEARCH"])))
def test_help_is_that_of_the_benchmark(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["scripts/bench", name, "--help"])
    try:
        code = PROGRAM["main"]()
    except SystemExit as error:
        code = error.code
    told = capsys.readouterr().out
    assert code == 0
    assert f"scripts/bench {name}" in told
    assert len(told.splitlines()) > 2
    assert OPTIONS.get(name, "") in told


def test_without_a_name_all_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["scripts/bench", "--help"])
    assert PROGRAM["main"]() == 0
    assert "forwarding" in capsys.readouterr().out


def test_several_are_measured_one_after_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["scripts/bench", "capture", "masks", "--json"])
    assert PROGRAM["main"]() == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(dict.fromkeys(row["command"] for row in shown)) == ["scripts/bench capture", "scripts/bench masks"]
    monkeypatch.setattr(sys, "argv", ["scripts/bench", "market", "exact", "--cheats"])
    with pytest.raises(SystemExit, match="2"):
        PROGRAM["main"]()
    assert "options are those of one benchmark" in capsys.readouterr().err


def test_the_ratio_is_to_what_is_known_or_else_to_the_reach() -> None:
    assert Figure("x", 3.0, "ms", paper=6.0, reach=1.0).ratio == 0.5
    assert Figure("x", 3.0, "ms", reach=12.0).ratio == 0.25
    assert Figure("x", 3.0, "ms").ratio is None
    assert Figure("x", 0.0, "", reach=0).ratio is None
