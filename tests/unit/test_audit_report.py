"""Reports: exit codes, counts, and both forms of output."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from support.audit_tampering import audited, recorded

from troth.audit import reproduction
from troth.audit.checks import EQUIVOCATION, NUMBERS, STREAM, TASK_CHECKS
from troth.audit.display import show
from troth.audit.json_output import to_json
from troth.audit.report import CheckReport, Finding, Kind, Report, Result
from troth.protocol.types import Address, Hash32, to_address

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = Address(to_address("0x" + "12" * 20))
TASK = Hash32(b"\x01" * 32)


def report_of(*kinds: Kind) -> Report:
    results = tuple(Result(TASK, (Finding("V2", kind, "something", TASK),)) for kind in kinds)
    check = CheckReport("V2", "a title", (*results, Result(TASK, ())))
    return Report(1, CONTRACT, 0, 9, TASK, (TASK,), (check,), ("a thing",))


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        ((), 0),
        ((Kind.CHEATED,), 1),
        ((Kind.MISMATCH,), 1),
        ((Kind.INCONCLUSIVE,), 4),
        ((Kind.INCOMPLETE,), 3),
        ((Kind.INCONCLUSIVE, Kind.CHEATED), 1),
        ((Kind.INCONCLUSIVE, Kind.CHEATED, Kind.INCOMPLETE), 3),
        ((Kind.INCONCLUSIVE, Kind.INCOMPLETE), 3),
    ],
)
def test_the_gravest_finding_decides_the_exit_code(kinds: tuple[Kind, ...], code: int) -> None:
    assert report_of(*kinds).exit_code == code


def test_results_are_counted_once_each() -> None:
    (check,) = report_of(Kind.CHEATED, Kind.INCONCLUSIVE, Kind.MISMATCH, Kind.INCOMPLETE).checks
    assert (check.ok, check.violations, check.inconclusive) == (1, 2, 2)


def test_json_says_what_the_report_says() -> None:
    report = audited(recorded(), "rejected")
    said = json.loads(to_json(report, reproduction.from_bundle(Path("a file.gz")), {"content": "x"}))
    assert (said["verdict"], said["exit_code"], said["content"]) == ("violation", 1, "x")
    assert [check["number"] for check in said["checks"]] == list(NUMBERS)
    (finding,) = said["findings"]
    assert finding["reproduce"] == f"troth audit verify 'a file.gz' --task {finding['task']} --check V11"
    assert (finding["role"], finding["amount_wei"], finding["kind"]) == ("inferencer", str(20 * 10**12), "party")
    assert said["not_checked"] == list(report.not_checked)


def test_people_see_a_line_per_check_and_the_culprit() -> None:
    report = audited(recorded())
    output = io.StringIO()
    show(report, reproduction.from_bundle(Path("file")), ["[from] here"], Console(file=output, width=200))
    text = output.getvalue()
    for check in report.checks:
        assert f"{check.number} " in text
    for finding in report.findings:
        assert finding.message in text
        assert finding.party is None or finding.party in text
    assert "[from] here" in text
    assert "verdict violation" in text


def test_commands_name_the_block_and_hide_a_secret_url() -> None:
    finding = report_of(Kind.CHEATED).findings[0]
    plain = reproduction.from_node("http://127.0.0.1:8545", CONTRACT, 0, 9)(finding)
    assert plain == (
        f"troth audit task 0x{TASK.hex()} --check V2 --start-block 0 --to-block 9"
        f" --rpc http://127.0.0.1:8545 --contract {CONTRACT}"
    )
    for url in ("https://user:secret@node.example", "https://node.example/v3/secret"):
        assert "secret" not in reproduction.from_node(url, CONTRACT, 0, 9)(finding)


def test_an_equivocation_is_shown_again_without_naming_a_task_that_may_not_exist() -> None:
    finding = Finding(EQUIVOCATION[0], Kind.CHEATED, "two rows", TASK)
    assert "troth audit chain" in reproduction.from_node("http://a", CONTRACT, 0, 9)(finding)
    assert "--task" not in reproduction.from_bundle(Path("file"))(finding)


def test_numbers_and_titles_are_the_same_in_code_and_documentation() -> None:
    text = (ROOT / "docs" / "auditors.md").read_text("utf-8")
    titles = {STREAM, EQUIVOCATION, *((check.number, check.title) for check in TASK_CHECKS)}
    assert sorted(NUMBERS) == sorted(number for number, _ in titles)
    for number, title in titles:
        assert f"| {number} | {title} |" in text
