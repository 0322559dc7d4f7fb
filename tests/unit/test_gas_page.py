"""The page of gas shows what the snapshot holds, so that a rewritten snapshot leaves no old figure behind."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SNAPSHOT = {
    name: int(gas)
    for name, gas in (
        line.split("\t")[:2] for line in (ROOT / "contracts" / "gas-snapshot").read_text().splitlines() if "\t" in line
    )
}
PAGE = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in (ROOT / "docs" / "reference" / "benchmarks" / "gas.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|")
]
ROWS = [row for row in PAGE if row[0] in SNAPSHOT]


def test_most_of_the_snapshot_is_on_the_page() -> None:
    assert len(ROWS) >= 40


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_shows_the_snapshots_gas_and_whether_it_reaches(row: list[str]) -> None:
    gas = SNAPSHOT[row[0]]
    assert row[1] == f"{gas:,}"
    if len(row) > 3 and row[2]:
        reach = int(row[2].replace(",", ""))
        assert row[3] == ("reached" if gas <= reach else f"missed by {100 * (gas - reach) / reach:.0f}%")
