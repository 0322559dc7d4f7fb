"""`troth audit`: exit code 0 clean, 1 proven violation, 2 usage, 3 could not complete, 4 inconclusive."""

from __future__ import annotations

import typer

from troth.audit.market import command

app = typer.Typer(
    no_args_is_help=True,
    help="Re-check from public data. Exit: 0 clean, 1 violation, 2 usage, 3 not completed, 4 undecided.",
)
command.add_to(app)
