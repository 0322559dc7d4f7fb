"""Results that are kept name the commit that was measured, and it had no changes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

RESULTS = sorted((Path(__file__).parents[1] / "results").glob("*.json"))


def test_there_are_results() -> None:
    assert RESULTS


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_a_result_names_its_commit_and_its_command(path: Path) -> None:
    figures = json.loads(path.read_text(encoding="utf-8"))
    assert figures
    (commit,) = {figure["commit"] for figure in figures}
    assert re.fullmatch("[0-9a-f]{12}", commit)
    (command,) = {figure["command"] for figure in figures}
    assert command.startswith(f"scripts/bench {path.stem}")
