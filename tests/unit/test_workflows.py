"""Files of .github/workflows: what they run is in the Makefile, and a push runs everything that `make test` does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = {
    name: needed.split("##")[0].split() for name, needed in re.findall(r"^([a-z][a-z-]*):(.*)$", MAKEFILE, re.MULTILINE)
}
"""Targets of the Makefile, and what each needs first."""
PHONY = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
VARIABLE = re.compile(r"\w+=\S*")


def jobs(workflow: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return found


def made(job: dict[str, Any]) -> set[str]:
    """Targets that a job makes, in all runs of its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {}).get("target", [])
    commands = [step["run"] for step in job["steps"] if "run" in step]
    lines = [line.removeprefix("make ") for command in commands for line in command.splitlines() if "make " in line]
    whole = [one for line in lines for one in (matrix if "matrix.target" in line else [line])]
    return {word for line in whole for word in line.split() if not VARIABLE.fullmatch(word)}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_targets_of_workflows_are_in_the_makefile(workflow: Path) -> None:
    named = {name: made(job) for name, job in jobs(workflow).items()}
    assert all(named.values()), named
    assert set().union(*named.values()) <= TARGETS.keys()


def test_a_push_runs_everything_that_make_test_does() -> None:
    pushed = jobs(ROOT / ".github" / "workflows" / "test.yml")["test"]
    parts = set(TARGETS["test"])
    assert len(parts) > 5
    assert parts <= made(pushed)


def test_every_target_is_phony() -> None:
    assert PHONY
    assert set(TARGETS) == set(PHONY[1].split())


def test_setting_up_leaves_tracked_files_as_they_are() -> None:
    """`npm install` writes into the lock file what its own version and the registry's address add."""
    installs = re.findall(r"^\t@?npm (.*)$", MAKEFILE, re.MULTILINE)
    assert installs
    assert all(line.startswith("ci ") or "--no-save" in line for line in installs), installs
