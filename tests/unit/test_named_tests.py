"""Every test that a document names as the one that shows something exists, in the file that is named beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/[!a]*/**/*.md")))
DEFINED = re.compile(r"^\s*(?:async def|def|function|contract) (test\w+|invariant_\w+|\w+Test)\b", re.MULTILINE)
NAMED = re.compile(r"`((?:test|invariant)_?\w+|\w+Test)(…?)`")
WHERE = re.compile(r"`(\w+|[\w/]*test_\w+\.py)`: ((?:`\w+…?`(?:, (?:and )?)?)+)")
FILE = re.compile(r"`(?:[\w/]*/)?(test_\w+\.py)`")


@cache
def defined() -> dict[str, frozenset[str]]:
    """Tests by the name of their file, without `.t.sol`."""
    found: dict[str, frozenset[str]] = {}
    for pattern in ("tests/**/test_*.py", "bench/tests/test_*.py", "contracts/test/**/*.t.sol"):
        for path in ROOT.glob(pattern):
            name = path.name.removesuffix(".t.sol")
            found[name] = found.get(name, frozenset()) | frozenset(DEFINED.findall(path.read_text("utf-8")))
    return found


def has(tests: frozenset[str], name: str, *, cut: bool) -> bool:
    return any(test.startswith(name) for test in tests) if cut else name in tests


def missing(text: str) -> Iterator[str]:
    everywhere = frozenset().union(*defined().values())
    for name, cut in NAMED.findall(text):
        if not has(everywhere, name, cut=bool(cut)):
            yield name
    for file in FILE.findall(text):
        if file not in defined():
            yield file
    for place, tests in WHERE.findall(text):
        file = place.rpartition("/")[2]
        if file not in defined():
            continue
        for name, cut in NAMED.findall(tests):
            if not has(defined()[file], name, cut=bool(cut)):
                yield f"{file}: {name}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_that_are_named_exist(path: Path) -> None:
    assert list(missing(path.read_text("utf-8"))) == []


def test_a_test_that_is_gone_is_noticed() -> None:
    here, there = "`test_named_tests.py`: `test_tests_that_…`, `test_no_such`", "`AttacksMoney`: `test_tests_that_…`"
    assert list(missing(f"{here} and `test_gone.py`; {there}")) == [
        "test_no_such",
        "test_gone.py",
        "test_named_tests.py: test_no_such",
        "AttacksMoney: test_tests_that_",
    ]
