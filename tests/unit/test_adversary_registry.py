"""The registry of adversaries names real cheats and real tests, and each name once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from adversaries.notes import SCHEDULER, Notes
from adversaries.references import REFERENCED, Referenced
from adversaries.registry import PLAYED
from adversaries.rules import RuleChanged, require_fits, set_rule

ROOT = Path(__file__).resolve().parents[2]


def test_every_name_is_given_once() -> None:
    names = Counter(one.name for one in (*PLAYED, *REFERENCED))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("adversary", REFERENCED, ids=lambda adversary: adversary.name)
def test_the_tests_that_are_named_exist(adversary: Referenced) -> None:
    assert adversary.tests
    for test in adversary.tests:
        require_test(test)


def require_test(test: str) -> None:
    """There is a test of this name, "path::name"."""
    path, name = test.split("::")
    kind = "function" if path.endswith(".sol") else "def"
    assert re.search(rf"\b{kind} {name}\(", (ROOT / path).read_text()), f"{path} has no {name}"


def test_rows_are_found_by_names_with_commas() -> None:
    named = ["lazy, copied root", "3 of 3 collude", "3 of 3 collude, nobody doubts"]
    chosen_rows = pytest.importorskip("adversaries.__main__").chosen_rows
    assert [one.name for one in chosen_rows(",".join(named))] == named
    with pytest.raises(ValueError, match="no row is called 'nothing'"):
        chosen_rows("int8 weights, nothing")


@pytest.mark.slow
def test_every_cheat_that_is_played_is_known_to_its_process() -> None:
    deceits = pytest.importorskip("adversaries.deceits").DECEITS
    played = {cheat for one in PLAYED for part, cheat in one.cheats if part != SCHEDULER}
    assert played - deceits.keys() == set()
    assert deceits.keys() - played == set()
    scripts = pytest.importorskip("adversaries.playbook").SCRIPTS
    assert {one.script for one in PLAYED if one.script} == scripts.keys()
    text = (ROOT / "tests" / "adversaries" / "scheduler.py").read_text()
    for one in PLAYED:
        for part, cheat in one.cheats:
            assert part != SCHEDULER or f'"{cheat}"' in text, cheat


@pytest.mark.slow
def test_every_replaced_rule_fits_in_the_place_of_the_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    conspiracy = pytest.importorskip("adversaries.conspiracy")
    scheduler = pytest.importorskip("adversaries.scheduler")
    for process in (conspiracy, scheduler):
        monkeypatch.setattr(process, "set_rule", require_fits)
    conspiracy.break_rules(conspiracy.Conspiracy(Notes(tmp_path)))
    scheduler.break_rules(lambda order: None)


def test_a_rule_that_takes_other_parameters_is_not_replaced() -> None:
    program = SimpleNamespace(__name__="program", choose=lambda asked, drawn, preferred: drawn)
    with pytest.raises(RuleChanged, match=r"program.choose is \(asked, drawn, preferred\), .* \(asked, drawn\)"):
        set_rule(program, "choose", lambda asked, drawn: drawn)
