"""What every `doctor` prints: one line per check, in columns, with the fix below what failed."""

from __future__ import annotations

import json

from troth.transport.health import HealthFinding, rendered

FOUND = [
    HealthFinding("rpc", True, "block 5", "unused"),
    HealthFinding("endpoint", False, "none is registered", "Register first."),
]


def test_lines_are_as_wide_as_the_longest_name() -> None:
    assert rendered(FOUND, as_json=False).splitlines() == [
        "ok   rpc      block 5",
        "FAIL endpoint none is registered",
        "     fix: Register first.",
    ]
    assert rendered([], as_json=False) == ""


def test_programs_get_every_field() -> None:
    assert json.loads(rendered(FOUND, as_json=True))[1] == FOUND[1]._asdict()
