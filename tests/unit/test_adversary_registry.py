"""The registry of adversaries names real cheats and real tests, and each name once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from adversaries.notes import SCHEDULER
from adversaries.references import REFERENCED, Referenced
from adversaries.registry import PLAYED

ROOT = Path(__file__).resolve().parents[2]


def test_every_name_is_given_once() -> None:
    names = Counter(one.name for one in (*PLAYED, *REFERENCED))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("adversary", REFERENCED, ids=lambda adversary: adversary.name)
def test_the_tests_that_are_named_exist(adversary: Referenced) -> None:
    assert adversary.tests
    for path, name in (test.split("::") for test in adversary.tests):
        kind = "function" if path.endswith(".sol") else "def"
        assert re.search(rf"\b{kind} {name}\(", (ROOT / path).read_text()), f"{path} has no {name}"


@pytest.mark.slow
def test_every_cheat_that_is_played_is_known_to_its_process() -> None:
    deceits = pytest.importorskip("adversaries.deceits").DECEITS
    played = {cheat for one in PLAYED for part, cheat in one.cheats if part != SCHEDULER}
    assert played - deceits.keys() == set()
    assert deceits.keys() - played == set()
    scripts = pytest.importorskip("adversaries.scripts").SCRIPTS
    assert {one.script for one in PLAYED if one.script} == scripts.keys()
    text = (ROOT / "tests" / "adversaries" / "scheduler.py").read_text()
    for one in PLAYED:
        for part, cheat in one.cheats:
            assert part != SCHEDULER or f'"{cheat}"' in text, cheat
