"""`troth client case`: options, and what is printed. Exit 4 where nothing can be done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from troth.client.options import PayerOptions
from troth.transport.command_options import grouped

NOTHING = 4


@grouped
def case(
    order: Annotated[str, typer.Argument(help="Order, or its beginning.")],
    *,
    open_it: Annotated[bool, typer.Option("--open", help="Bring it to the court; without it nothing is sent.")] = False,
    most_bond: Annotated[
        str, typer.Option("--most-bond", help="Most that is put up, e.g. 5usdc; without it what [market] case allows.")
    ] = "",
    segment: Annotated[
        int, typer.Option("--segment", help="Which result; -1: those that were rejected, or the only one.")
    ] = -1,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write the evidence to this file: it holds prompt and answer.")
    ] = None,
    rows: Annotated[
        bool,
        typer.Option("--rows", help="Put the answer's rows into the file, for `troth node accuse`; with --write."),
    ] = False,
    carry_on: Annotated[
        bool, typer.Option("--carry/--no-carry", help="Carry it to its end; else `serve` and `chat` do while they run.")
    ] = True,
    options: PayerOptions,
) -> None:
    """Say what can be done about an answer: convict, bring it to the court, summon; and do it with --open."""
    # Not loaded for help: forty modules.
    from troth.client.interrupts import interruptible
    from troth.client.orders import case_terminal

    purse, configuration = options.purse(), options.configuration()
    if rows and (write is None or open_it):
        raise typer.BadParameter("rows go into the file that --write names, and a case needs none")
    if open_it:
        how = case_terminal.How(most_bond, segment, carry_on)
        work = case_terminal.bring(purse, configuration, order, write, how)
    else:
        work = case_terminal.show(purse, configuration, order, write, rows=rows)
    told = interruptible(work)
    typer.echo(json.dumps(told.to_json()) if options.as_json else "\n".join(told.lines))
    if told.nothing:
        raise typer.Exit(NOTHING)
