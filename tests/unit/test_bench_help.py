"""`scripts/bench NAME --help` shows what NAME measures, and its options."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Sequence
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


@pytest.mark.parametrize(
    ("given", "name", "options"),
    [
        ("overlay cells", "overlay", ["cells"]),
        ("overlay sida paths --json", "overlay", ["sida", "paths"]),
        ("--json overlay cells", "overlay", ["cells"]),
        ("forwarding costs --jobs 2", "forwarding", ["costs", "--jobs", "2"]),
        ("forwarding simulation sizes ablation", "forwarding", ["simulation", "sizes", "ablation"]),
        ("forwarding ablation", "forwarding", ["ablation"]),  # a part of it, though a benchmark is called so too
        ("forwarding real --nodes 3", "forwarding", ["real", "--nodes", "3"]),
        ("exact --scratch gas", "exact", ["--scratch", "gas"]),
    ],
)
def test_parts_and_options_reach_their_benchmark(
    given: str, name: str, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    got: list[list[str]] = []

    def measure(options: Sequence[str] = ()) -> list[Figure]:
        got.append(list(options))
        return []

    monkeypatch.setattr(PROGRAM["module_of"](name), "measure", measure)
    monkeypatch.setattr(sys, "argv", ["scripts/bench", *given.split()])
    assert PROGRAM["main"]() == 0
    assert got == [options]
    assert ("--json" in given) == capsys.readouterr().out.startswith("[]")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("gsa", "gsa is no benchmark: choose of ablation, "),
        ("--jobs 2", "--jobs is no benchmark"),
        ("--json", "name a benchmark: "),
        ("gas crypt", "gas takes no options, not crypt"),
        ("overlay tokens", "there is no part tokens"),
        ("forwarding gates", "no such part: gates"),
    ],
)
def test_what_is_no_benchmark_and_no_part_is_named(
    given: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["scripts/bench", *given.split()])
    with pytest.raises(SystemExit, match="2"):
        PROGRAM["main"]()
    assert said in capsys.readouterr().err


def test_the_ratio_is_to_what_is_known_or_else_to_the_reach() -> None:
    assert Figure("x", 3.0, "ms", paper=6.0, reach=1.0).ratio == 0.5
    assert Figure("x", 3.0, "ms", reach=12.0).ratio == 0.25
    assert Figure("x", 3.0, "ms").ratio is None
    assert Figure("x", 0.0, "", reach=0).ratio is None
