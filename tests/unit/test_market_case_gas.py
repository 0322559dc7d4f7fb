"""Nobody earns by carrying cases on: what the steps of a case are paid back is below what they cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support import market_scene

from troth.protocol.market import economy
from troth.protocol.market.court import CaseFinding
from troth.protocol.market.court_money import CaseGas, DecisionEffects
from troth.protocol.market.proceedings import CaseKind, Outcome

SNAPSHOT = Path(__file__).parents[2] / "contracts" / "gas-snapshot"
REVIEWERS = 15
LEAST_SHARE = 0.7
"""Of what a step costs, which is paid back. Noise in tiles is not: calldata that nobody needs looks the same."""
WHOLE = "case that suspends, a call a step: "
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
    found = CaseFinding(Outcome.CONVICTED, cluster=everybody, paid=True, telling=everybody, node=True)
    done = DecisionEffects(convicts=True, evicts=True)
    paid = {
        "open": gas.opening(CaseKind.REJECTION),
        "convene": gas.convening(REVIEWERS),
        "draw": gas.drawing(REVIEWERS),
        "commit": gas.committing(REVIEWERS, posted=0, signed=REVIEWERS),
        "decide": gas.deciding(REVIEWERS, found, done),
    }
    if not exact:
        paid["seed"] = gas.seeding(REVIEWERS)
        paid["conclude"] = gas.deciding(REVIEWERS, found, replace(done, proves=True))
    for step, amount in paid.items():
        spent = measured[f"case: {step}, {kind}"]
        # Never more, so that nobody earns by it; and most of it, so that who carries a case on is not out of pocket.
        assert LEAST_SHARE * spent < amount < spent, step


def test_a_seat_reserves_more_than_a_case_costs() -> None:
    """Of each class that the benchmark hears step by step, with a suspension."""
    heard = {name: spent for name, spent in _measured().items() if name.startswith(WHOLE)}
    assert len(heard) > 3
    for name, spent in heard.items():
        reviewers, tiles = (int(word) for word in name.removeprefix(WHOLE).split()[::2])
        assert economy.case_gas(reviewers, tiles) > 1.1 * spent, name
