"""A report for people, as JSON for programs, and no unforeseen error that looks like a violation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from troth.audit.errors import AuditError
from troth.audit.report import AuditReport, CheckReport, ExitCode, Finding, FindingKind, Reproduce
from troth.protocol.types import ZERO_HASH
from troth.transport.errors import visible

_VERDICTS = {
    ExitCode.CLEAN: "[bold green]clean[/]: nothing that was checked is out of order",
    ExitCode.VIOLATION: "[bold red]violation[/]: see the findings",
    ExitCode.COULD_NOT_COMPLETE: "[bold red]could not complete[/]: some checks could not be carried out",
    ExitCode.INCONCLUSIVE: "[bold yellow]inconclusive[/]: no violation is proven, and not everything is",
}

_COLOURS = {FindingKind.CHEATED: "red", FindingKind.MISMATCH: "red", FindingKind.OBSERVED: "cyan"}
VERSION = 1
Made = TypeVar("Made")


def show(report: AuditReport, reproduce: Reproduce, lines: Iterable[str], console: Console) -> None:
    """Print the report; ``lines`` say where the evidence came from."""
    console.print(f"contract {report.contract} on chain {report.chain_id}")
    if report.last_block_hash == ZERO_HASH:
        console.print("no block: no chain was asked")
    else:
        console.print(f"blocks {report.first_block} to {report.last_block}, hash 0x{report.last_block_hash.hex()}")
    for line in lines:
        console.print(visible(line), markup=False)
    console.print(_table(report))
    for finding in report.findings:
        show_finding(finding, reproduce, console)
    console.print("[bold]not checked[/]")
    for line in report.not_checked:
        console.print(f"  {visible(line)}", markup=False)
    console.print(f"[bold]verdict[/] {_VERDICTS[report.exit_code]} (exit {int(report.exit_code)})")


def _table(report: AuditReport) -> Table:
    table = Table(title=counted(len(report.tasks), report.subject), title_justify="left")
    # Folded: a narrow terminal loses no letter of a title.
    for heading in ("check", ""):
        table.add_column(heading, overflow="fold")
    for heading in ("ok", "violation", "inconclusive"):
        table.add_column(heading, justify="right", overflow="fold")
    for check in report.checks:
        table.add_row(
            check.number, check.title, *(str(count) for count in (check.ok, check.violations, check.inconclusive))
        )
    return table


def show_finding(finding: Finding, reproduce: Reproduce, console: Console) -> None:
    """One finding with what to look at, and the command that shows it again.

    Words of whoever is audited may be in it: they must neither steer the terminal nor look like a line of ours.
    """
    colour = _COLOURS.get(finding.kind, "yellow")
    console.print(f"[bold {colour}]{finding.check} {finding.kind.value}[/] {escape(visible(finding.message))}")
    for name, value in _details(finding):
        console.print(visible(f"  {name}: {value}"), markup=False)
    console.print(f"  reproduce: {reproduce(finding)}", markup=False)


def _details(finding: Finding) -> Iterable[tuple[str, str]]:
    if finding.task_id is not None:
        yield "about", "0x" + finding.task_id.hex()
    if finding.segment is not None:
        yield "segment", str(finding.segment)
    if finding.party is not None:
        yield finding.role or "party", finding.party
    if finding.amount is not None:
        yield "amount", f"{finding.amount} wei"
    if finding.place is not None:
        yield "where", f"block {finding.place.block}, transaction 0x{finding.place.transaction.hex()}"
    yield from finding.evidence
    if finding.action is not None:
        yield "act", finding.action


def to_json(report: AuditReport, reproduce: Reproduce, more: Mapping[str, Any]) -> str:
    """The report, with what else its source has to say under its own keys."""
    return json.dumps(
        {
            "version": VERSION,
            "chain_id": report.chain_id,
            "contract": report.contract,
            "first_block": report.first_block,
            "last_block": report.last_block,
            "last_block_hash": _hex(report.last_block_hash),
            "tasks": [_hex(task) for task in report.tasks],
            "checks": [_check(check) for check in report.checks],
            "findings": [finding_json(finding, reproduce) for finding in report.findings],
            "not_checked": list(report.not_checked),
            "verdict": report.exit_code.name.lower(),
            "exit_code": int(report.exit_code),
            **more,
        },
        indent=2,
    )


def _check(check: CheckReport) -> dict[str, Any]:
    return {
        "number": check.number,
        "title": check.title,
        "ok": check.ok,
        "violations": check.violations,
        "inconclusive": check.inconclusive,
    }


def finding_json(finding: Finding, reproduce: Reproduce) -> dict[str, Any]:
    """One finding as an object."""
    return {
        "check": finding.check,
        "kind": finding.kind.value,
        "message": finding.message,
        "task": None if finding.task_id is None else _hex(finding.task_id),
        "segment": finding.segment,
        "party": finding.party,
        "role": finding.role,
        "amount_wei": None if finding.amount is None else str(finding.amount),
        "block": None if finding.place is None else finding.place.block,
        "transaction": None if finding.place is None else _hex(finding.place.transaction),
        "evidence": dict(finding.evidence),
        "action": finding.action,
        "reproduce": reproduce(finding),
    }


def _hex(raw: bytes) -> str:
    return "0x" + raw.hex()


def guarded(work: Callable[[], Made]) -> Made:
    """An error that nobody foresaw must not look like a violation, whose exit code is 1."""
    try:
        return work()
    except AuditError:
        raise
    except (FileExistsError, NotADirectoryError) as error:
        remedy = "Name a folder, or move the file away."
        raise AuditError("A file is where a folder should be", error.filename, remedy) from error
    except OSError as error:
        if error.filename is None:
            raise _unforeseen(error) from error
        what, remedy = f"A file cannot be used: {error.strerror}", "Check the path, its rights and the disk."
        raise AuditError(what, error.filename, remedy) from error
    except Exception as error:
        raise _unforeseen(error) from error


def _unforeseen(error: Exception) -> AuditError:
    what = f"The audit stopped on an error that it does not know: {type(error).__name__}"
    return AuditError(what, error, "Run `troth --debug audit ...` to see where, and report it.")


def finish(
    report: AuditReport,
    reproduce: Reproduce,
    as_json: bool,
    lines: Iterable[str] = (),
    more: Mapping[str, Any] | None = None,
) -> NoReturn:
    """Print the report, and leave with its exit code."""
    if as_json:
        typer.echo(to_json(report, reproduce, more or {}))
    else:
        show(report, reproduce, lines, Console(soft_wrap=True, highlight=False))
    raise typer.Exit(int(report.exit_code))


def counted(count: int, what: str) -> str:
    """`1 case`, `2 cases`, `2 log entries`."""
    if count == 1:
        return f"1 {what}"
    return f"{count} {what[:-1]}ies" if what.endswith("y") else f"{count} {what}s"
