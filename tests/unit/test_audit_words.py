"""What an auditor reads on a terminal: words of whoever is audited steer nothing, and begin no line of their own."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from support.market_record import SCHEDULER, posted, record
from unit.test_market_audit_logs import changed, honest

from troth.audit.checks import logs
from troth.audit.display import show
from troth.audit.report import AuditReport, CheckReport, ExitCode
from troth.audit.watch_terminal import Printer
from troth.protocol.market import log_data
from troth.protocol.types import ZERO_HASH

CLEAN = "\x1b[2J\x1b[H\u202e\nverdict clean: nothing that was checked is out of order"
"""What a terminal would show in place of all findings."""


def cheated() -> tuple[CheckReport, ...]:
    """What is found of a log whose line names an order so."""
    data = log_data.encode_line(changed(order=CLEAN)) + b"\n"
    entry = posted(log_data.encode_data([honest()]), data_hash=log_data.data_hash(data))
    return logs.examine(record(entry), logs.ServedLogs(SCHEDULER, {1: data}, {}, ()))


def test_a_report_shows_no_words_of_who_is_audited_that_steer_a_terminal() -> None:
    report = AuditReport(31337, SCHEDULER, 1, 2, ZERO_HASH, (), cheated(), (CLEAN,))
    assert report.exit_code is ExitCode.VIOLATION
    shown = StringIO()
    show(report, lambda _: "troth audit log", [CLEAN], Console(file=shown, soft_wrap=True))
    said = shown.getvalue()
    assert "the data cannot be read" in said
    assert not [one for one in said if not one.isprintable() and one != "\n"]
    assert not [line for line in said.splitlines() if line.startswith("verdict clean")]


def test_nor_does_a_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    printer, shown = Printer(SimpleNamespace(services=None, factory=""), as_json=False), StringIO()  # type: ignore[arg-type]
    monkeypatch.setattr(Printer, "_again", lambda _self, _finding: "troth audit log")
    printer._console = Console(file=shown, soft_wrap=True)
    findings = tuple(found for check in cheated() for result in check.results for found in result.findings)
    report: Any = AuditReport(31337, SCHEDULER, 1, 2, ZERO_HASH, (), cheated(), ())
    printer.look(SimpleNamespace(report=report, fresh=findings, gone=(CLEAN,)))  # type: ignore[arg-type]
    printer.failed(ValueError(CLEAN))
    said = shown.getvalue()
    assert "the data cannot be read" in said
    assert "no longer" in said
    assert not [one for one in said if not one.isprintable() and one != "\n"]
    assert not [line for line in said.splitlines() if line.startswith("verdict clean")]
