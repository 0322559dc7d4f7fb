"""scripts/static_analysis: Slither looks at every contract that is deployed, and each excuse says why it is none."""

from __future__ import annotations

import json
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / "contracts"
NOT_DEPLOYED = {"libraries", "test"}


@pytest.fixture(name="script", scope="module")
def _script() -> ModuleType:
    loader = SourceFileLoader("static_analysis", str(ROOT / "scripts" / "static_analysis"))
    module = module_from_spec(spec_from_loader("static_analysis", loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


def test_every_contract_that_is_deployed_is_looked_at(script: ModuleType) -> None:
    deployed = {
        str(path.relative_to(ROOT))
        for path in CONTRACTS.rglob("*.sol")
        if path.relative_to(CONTRACTS).parts[0] not in NOT_DEPLOYED
        and re.search(r"^contract \w+", path.read_text(), re.MULTILINE)
    }
    assert "contracts/tickets/Tickets.sol" in deployed
    assert sorted(deployed - set(script.COMPILER_INPUT["sources"])) == []


def test_a_struct_of_another_name_leaves_every_place_where_it_was(script: ModuleType) -> None:
    path = CONTRACTS / "disputes" / "Disputes.sol"
    read, written = script.source(path)["content"], path.read_text()
    assert len(read) == len(written)
    assert "returns (Wor_ memory)" in read
    assert (
        script.source(CONTRACTS / "market" / "Bank.sol")["content"] == (CONTRACTS / "market" / "Bank.sol").read_text()
    )


def test_each_excuse_has_a_reason_and_stands_once() -> None:
    known = json.loads((ROOT / "scripts" / "static_analysis_triage.json").read_text())
    assert all(one["reason"].endswith(".") and one["findings"] > 0 for one in known)
    assert len({(one["detector"], one["place"]) for one in known}) == len(known)
