"""What every `doctor` prints: a line per check as soon as it is known, in columns, with the fix below what failed."""

from __future__ import annotations

import json
from collections.abc import Iterator

from troth.transport.health import HealthFinding, tell

FOUND = [
    HealthFinding("rpc", True, "block 5", "unused"),
    HealthFinding("endpoint", False, "none is registered", "Register first."),
]


def test_lines_stand_in_columns() -> None:
    written: list[str] = []
    assert not tell(FOUND, False, written.append)
    assert "\n".join(written).splitlines() == [
        "ok   rpc      block 5",
        "FAIL endpoint none is registered",
        "     fix: Register first.",
    ]
    assert tell(FOUND[:1], False, written.append)


def test_a_line_is_written_before_the_next_check_is_made() -> None:
    written: list[str] = []

    def checks() -> Iterator[HealthFinding]:
        yield FOUND[0]
        assert written == ["ok   rpc      block 5"], "whoever waits for a slow check sees the ones before it"
        yield FOUND[1]

    assert not tell(checks(), False, written.append)
    assert len(written) == 2


def test_programs_get_every_field() -> None:
    written: list[str] = []
    tell(FOUND, True, written.append)
    assert json.loads(written[0])[1] == FOUND[1]._asdict()
    assert len(written) == 1
