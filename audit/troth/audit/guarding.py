"""What all audit commands share: no unforeseen error looks like a violation, and a report is printed and ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

import typer
from rich.console import Console

from troth.audit.display import show
from troth.audit.errors import AuditError
from troth.audit.json_output import to_json
from troth.audit.report import Report, Reproduce

Made = TypeVar("Made")


def guarded(work: Callable[[], Made]) -> Made:
    """An error that nobody foresaw must not look like a violation, whose exit code is 1."""
    try:
        return work()
    except AuditError:
        raise
    except Exception as error:
        what = f"The audit stopped on an error that it does not know: {type(error).__name__}"
        raise AuditError(what, error, "Run `troth --debug audit ...` to see where, and report it.") from error


def finish(
    report: Report,
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
