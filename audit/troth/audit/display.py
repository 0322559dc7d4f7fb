"""A report for people: a line per check, then each finding with the command that shows it again."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from troth.audit.report import ExitCode, Finding, Report, Reproduce

_VERDICTS = {
    ExitCode.CLEAN: "[bold green]clean[/]: nothing that was checked is out of order",
    ExitCode.VIOLATION: "[bold red]violation[/]: see the findings",
    ExitCode.COULD_NOT_COMPLETE: "[bold red]could not complete[/]: some checks could not be carried out",
    ExitCode.INCONCLUSIVE: "[bold yellow]inconclusive[/]: no violation is proven, and not everything is",
}


def show(report: Report, reproduce: Reproduce, lines: Iterable[str], console: Console) -> None:
    """Print the report; ``lines`` say where the evidence came from."""
    console.print(f"contract {report.contract} on chain {report.chain_id}")
    console.print(f"blocks {report.first_block} to {report.last_block}, hash 0x{report.last_block_hash.hex()}")
    for line in lines:
        console.print(line, markup=False)
    console.print(_table(report))
    for finding in report.findings:
        show_finding(finding, reproduce, console)
    console.print("[bold]not checked[/]")
    for line in report.not_checked:
        console.print(f"  {line}", markup=False)
    console.print(f"[bold]verdict[/] {_VERDICTS[report.exit_code]} (exit {int(report.exit_code)})")


def _table(report: Report) -> Table:
    table = Table(
        "check",
        "",
        title=f"{len(report.tasks)} {report.subject}{'' if len(report.tasks) == 1 else 's'}",
        title_justify="left",
    )
    for heading in ("ok", "violation", "inconclusive"):
        table.add_column(heading, justify="right")
    for check in report.checks:
        table.add_row(
            check.number, check.title, *(str(count) for count in (check.ok, check.violations, check.inconclusive))
        )
    return table


def show_finding(finding: Finding, reproduce: Reproduce, console: Console) -> None:
    """One finding with what to look at, and the command that shows it again."""
    colour = "yellow" if finding.kind.value.startswith("inco") else "red"
    console.print(f"[bold {colour}]{finding.check} {finding.kind.value}[/] {escape(finding.message)}")
    for name, value in _details(finding):
        console.print(f"  {name}: {value}", markup=False)
    console.print(f"  reproduce: {reproduce(finding)}", markup=False)


def _details(finding: Finding) -> Iterable[tuple[str, str]]:
    if finding.task_id is not None:
        yield "task", "0x" + finding.task_id.hex()
    if finding.segment is not None:
        yield "segment", str(finding.segment)
    if finding.party is not None:
        yield finding.role or "party", finding.party
    if finding.amount is not None:
        yield "slashed", f"{finding.amount} wei"
    if finding.place is not None:
        yield "where", f"block {finding.place.block}, transaction 0x{finding.place.transaction.hex()}"
    yield from finding.evidence
    if finding.action is not None:
        yield "act", finding.action
