"""`scripts/bench NAME --help` shows what NAME measures, and its options."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

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
