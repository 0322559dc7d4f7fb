"""Nobody earns by carrying cases on: what the steps of a case are paid back is below what they cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support import market_scene

from troth.protocol.market.court import Finding
from troth.protocol.market.court_money import CaseGas
from troth.protocol.market.types import CaseKind, Outcome

SNAPSHOT = Path(__file__).parents[2] / "contracts" / "gas-snapshot"
REVIEWERS = 15
ROWS, COLUMNS = 63, 576
"""Of the traces that the benchmark judges."""


def _measured() -> dict[str, int]:
    lines = (line.split("\t") for line in SNAPSHOT.read_text(encoding="utf-8").splitlines())
    return {name: int(value) for name, value in lines}


@pytest.mark.parametrize("kind", ["exact", "tolerant, one tile"])
def test_steps_of_a_case_are_paid_back_less_than_they_cost(kind: str) -> None:
    exact, measured = kind == "exact", _measured()
    of_class = market_scene.rules(exact=exact, tiles=0 if exact else 1, reviewers=REVIEWERS)
    rules = replace(of_class, hidden_size=COLUMNS, dtype=0)
    gas = CaseGas(rules, ROWS, 10**9)
    everybody = frozenset(range(REVIEWERS))
    found = Finding(Outcome.CONVICTED, cluster=everybody, paid=True, telling=everybody)
    paid = {
        "open": gas.opening(CaseKind.REJECTION),
        "draw": gas.drawing(REVIEWERS),
        "commit": gas.committing(REVIEWERS),
        "decide": gas.deciding(REVIEWERS, found, convicts=True),
    }
    if not exact:
        paid["seed"] = gas.seeding(REVIEWERS)
    for step, amount in paid.items():
        assert 0 < amount < measured[f"case: {step}, {kind}"], step
