"""`troth client tickets …`: options, and what is printed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from troth.client.options import (
    DEFAULT_HOME,
    CommitteeOption,
    HomeOption,
    OverlayOption,
    SchedulerOption,
    carried_out,
    read_configuration,
    tell,
)
from troth.transport.command_options import AMOUNT, BroadcastOption, JsonOption, PasswordOption, RpcOption

if TYPE_CHECKING:
    from troth.client.configuration import ClientConfiguration
    from troth.client.tabs.managing import Purse

app = typer.Typer(
    no_args_is_help=True, help="Pay without being known: tickets that nobody can join to the wallet that bought them."
)
TicketsOption = Annotated[
    str, typer.Option("--tickets", envvar="TROTH_TICKETS", help="Tickets contract, 0x…; else client.toml's.")
]


@app.command()
def buy(  # noqa: PLR0917
    price: Annotated[str, typer.Argument(help="Price of one ticket, as `troth client tickets list` shows it.")],
    count: Annotated[int, typer.Argument(min=1, max=256, help="How many.")],
    broadcast: BroadcastOption = False,
    tickets: TicketsOption = "",
    password_file: PasswordOption = None,
    rpc: RpcOption = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Buy tickets of one price with one transaction (dry run by default), and have members sign them."""
    from troth.client.tabs import opening
    from troth.client.tickets import managing

    purse, configuration = _place(home, password_file, rpc=rpc, tickets=tickets)
    done = carried_out(managing.buy(purse, configuration, price, count, broadcast=broadcast))
    tell(done, as_json, f"{count} tickets for {done['cost']}\n{opening.describe(done)}{_collected(done)}")


@app.command()
def collect(
    tickets: TicketsOption = "",
    password_file: PasswordOption = None,
    rpc: RpcOption = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Have members sign what was paid and is not signed yet; asking again costs nothing."""
    from troth.client.tickets import managing

    purse, configuration = _place(home, password_file, rpc=rpc, tickets=tickets)
    done = carried_out(managing.collect(purse, configuration))
    tell(done, as_json, _collected(done).strip())


@app.command("list")
def list_tickets(
    tickets: TicketsOption = "",
    password_file: PasswordOption = None,
    rpc: RpcOption = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show the prices, and how many tickets of each can be spent."""
    from troth.client.tickets import managing

    purse, configuration = _place(home, password_file, rpc=rpc, tickets=tickets)
    found = carried_out(managing.list_tickets(purse, configuration))
    tell(found, as_json, _listed(found))


@app.command("open")
def open_tab(  # noqa: PLR0917
    amount: Annotated[str, typer.Argument(help=f"What the tab holds at least, after fees. {AMOUNT}")],
    scheduler: SchedulerOption = "",
    tickets: TicketsOption = "",
    committee: CommitteeOption = "",
    overlay: OverlayOption = "",
    password_file: PasswordOption = None,
    rpc: RpcOption = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Fill a tab of a new key with tickets, sent to the scheduler as orders are; the wallet signs nothing."""
    from troth.client.tickets import managing

    purse, configuration = _place(home, password_file, rpc=rpc, tickets=tickets)
    configuration = configuration.overridden(scheduler=scheduler, committee=committee, overlay=overlay)
    done = carried_out(managing.open_tab(purse, configuration, amount))
    text = f"tab {done['tab']} with {done['scheduler']}, filled by {done['tickets']} tickets"
    if not done["opened"]:
        back = "`troth client tickets change` gets them back"
        text = f"{done['tickets']} tickets were taken, and the tab did not open: {back}"
    tell(done, as_json, text)


@app.command()
def change(
    tickets: TicketsOption = "",
    password_file: PasswordOption = None,
    rpc: RpcOption = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Bring back what is left of tabs that tickets filled, as new tickets: closes them, and buys once that is over."""
    from troth.client.tickets import managing

    purse, configuration = _place(home, password_file, rpc=rpc, tickets=tickets)
    done = carried_out(managing.change(purse, configuration))
    tell(done, as_json, "\n".join(_changed(one) for one in done) or "no tab was filled by tickets")


def _changed(one: Mapping[str, Any]) -> str:
    match one["step"]:
        case "closed":
            return f"{one['tab'][:12]}  closing; run this again once it is free"
        case "wait":
            return f"{one['tab'][:12]}  free from block {one['closes_at']} on; it is {one['block']}"
        case "bought":
            return f"{one['tab'][:12]}  tickets for {one['cost']} bought{_collected(one)}"
        case _:
            return f"{one['tab'][:12]}  {one['left']} left, less than the smallest ticket and the fee"


@app.command()
def refund(  # noqa: PLR0917
    broadcast: BroadcastOption = False,
    tickets: TicketsOption = "",
    password_file: PasswordOption = None,
    rpc: RpcOption = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Have tickets refunded that can no longer be spent (dry run by default).

    Who bought them is paid, and becomes known as their buyer.
    """
    from troth.client.tabs import opening
    from troth.client.tickets import managing

    purse, configuration = _place(home, password_file, rpc=rpc, tickets=tickets)
    done = carried_out(managing.refund(purse, configuration, broadcast=broadcast))
    lines = [f"purchase {one['purchase']}: {one['tickets']} tickets\n{opening.describe(one)}" for one in done]
    tell(done, as_json, "\n".join(lines) or "there is nothing to refund")


def _place(home: Path, password_file: Path | None, *, rpc: str, tickets: str) -> tuple[Purse, ClientConfiguration]:
    from troth.client.home import Home
    from troth.client.tabs.managing import Purse

    place = Home(home.expanduser())
    return Purse(place, password_file), read_configuration(place, rpc, tickets=tickets)


def _collected(done: Mapping[str, Any]) -> str:
    if "signed" not in done:
        return ""
    lines = [f"\n{done['signed']} tickets were signed"]
    lines += [f"  waits: {one}; `troth client tickets collect` asks again" for one in done["waiting"]]
    lines += [f"  {one} signed nonsense, and was passed over" for one in done["signed_nonsense"]]
    return "\n".join(lines)


def _listed(found: Mapping[str, Any]) -> str:
    lines = [f"epoch {found['epoch']}"]
    for row in found["tickets"]:
        late = f", {row['this_epoch_only']} of them in this epoch only" if row["this_epoch_only"] else ""
        refund_ = f"; {row['to_refund']} to refund" if row["to_refund"] else ""
        lines.append(f"  {row['price']}: {row['spendable']} can be spent{late}{refund_}")
    if found["purchases_to_sign"]:
        lines.append(f"  {found['purchases_to_sign']} purchases wait for signatures: troth client tickets collect")
    if found["payments_cut_off"]:
        lines.append(f"  {found['payments_cut_off']} payments were cut off: `troth client tickets open` finishes them")
    return "\n".join(lines)
