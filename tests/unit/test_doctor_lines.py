"""What every `doctor` prints: a line per check as soon as it is known, in columns, with the fix below what failed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from troth.chain.errors import ChainError
from troth.node.inspection import machine_checks, status
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


def test_a_node_says_what_it_does_before_what_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model took a dozen seconds without a word."""
    heard: list[str] = []
    place = SimpleNamespace(engine="torch", model="toy", rpc="http://user:password@127.0.0.1:1/")

    def finding(check: str) -> Callable[..., HealthFinding]:
        return lambda *_given: heard.append(f"did {check}") or HealthFinding(check, True, "", "")

    for name in ("device", "model", "port"):
        monkeypatch.setattr(machine_checks, f"_{name}", finding(name))
    list(machine_checks.machine_findings(place, lambda: place, heard.append))  # type: ignore[arg-type]
    assert [one.split(":")[0] for one in heard] == ["device", "did device", "did model", "did port"]

    def away(*_given: object) -> None:
        heard.append("asked")
        raise ChainError("away", "", "")

    monkeypatch.setattr(status, "load", lambda _home: place)
    monkeypatch.setattr(status, "process_state", lambda _place: {})
    monkeypatch.setattr(status, "look_around", away)
    found = list(status.examining(tmp_path, say=heard.append))
    assert [one.check for one in found] == ["config", "rpc", "device", "port", "process"]
    assert heard[heard.index("asked") - 1].startswith("rpc: reading the chain at http://127.0.0.1:1")
    assert "password" not in "".join(heard)
