"""What an auditor reads on a terminal: words of whoever is audited steer nothing, and begin no line of their own."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich.console import Console
from support.market_record import SCHEDULER, posted, record
from unit.test_market_audit_logs import changed, honest

from troth.audit.checks import logs
from troth.audit.display import finish, show
from troth.audit.report import AuditReport, CheckReport, ExitCode
from troth.audit.watching.terminal import Printer
from troth.protocol.market import log_data
from troth.protocol.types import ZERO_HASH, Hash32

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


@pytest.mark.parametrize("columns", ["30", "80"])
def test_what_is_copied_from_a_report_stands_on_one_line(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a narrow terminal and in a file: no line is broken but by the terminal, which copies it whole."""
    monkeypatch.setenv("COLUMNS", columns)
    evidence = "bundle /" + "folder/" * 20
    command = f"troth audit log {SCHEDULER} --network {'folder/' * 20}network.json"
    checks = cheated()
    with pytest.raises(typer.Exit):
        finish(
            AuditReport(31337, SCHEDULER, 1, 2, Hash32(b"\x77" * 32), (), checks, ()),
            lambda _: command,
            False,
            [evidence],
        )
    lines = capsys.readouterr().out.splitlines()
    finding = next(found for check in checks for result in check.results for found in result.findings)
    assert finding.task_id is not None
    assert finding.place is not None
    whole = ("0x" + "77" * 32, SCHEDULER, "0x" + finding.task_id.hex(), "0x" + finding.place.transaction.hex())
    for text in (*whole, evidence, f"  reproduce: {command}"):
        assert [line for line in lines if text in line], text
    assert not [line for line in lines if "…" in line]


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
