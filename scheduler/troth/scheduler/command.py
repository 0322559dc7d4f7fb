"""`troth scheduler …`: what the operator of a scheduler runs."""

from __future__ import annotations

import typer

from troth.scheduler.commands.market import earnings, finish, prices, redeem, tabs, top_up
from troth.scheduler.commands.serving import doctor, init, start, status
from troth.scheduler.commands.transactions import claim, leave, register, withdraw

app = typer.Typer(
    help="Run a scheduler: it takes orders, relays them through nodes, and is paid on tabs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(init)
app.command()(register)
app.command()(start)
app.command("run", hidden=True)(start)
app.command()(status)
app.command()(doctor)
app.command()(tabs)
app.command()(prices)
app.command()(earnings)
app.command()(redeem)
app.command("top-up")(top_up)
app.command()(finish)
app.command("exit")(leave)
app.command()(withdraw)
app.command()(claim)
