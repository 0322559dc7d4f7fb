"""`troth client open`, `top-up`, `tabs`, `finish` and `summon`: options, and what is printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from troth.client.options import (
    DEFAULT_HOME,
    ClientOptions,
    HomeOption,
    PayerOptions,
    SchedulerOption,
    carried_out,
    tell,
)
from troth.transport.command_options import BroadcastOption, JsonOption, grouped

if TYPE_CHECKING:
    from troth.client.configuration import ClientConfiguration

WebOption = Annotated[bool, typer.Option("--web", help="Have a browser's wallet sign it, on a page of this machine.")]
OneTabArgument = Annotated[str, typer.Argument(help="Beginning of the tab's id or of its scheduler's address.")]
TabsArgument = Annotated[
    str, typer.Argument(help="Beginning of the tab's id or of its scheduler's address; without it, all tabs.")
]


@grouped
def open_tab(
    amount: Annotated[str, typer.Argument(help="For example 0.05ether, 5usdc or 1000units.")],
    *,
    scheduler: SchedulerOption = "",
    payer: Annotated[
        str, typer.Option("--payer", help="Account that pays, if it is not the wallet here: the calls are for it.")
    ] = "",
    broadcast: BroadcastOption = False,
    web: WebOption = False,
    options: PayerOptions,
) -> None:
    """Open a tab with a scheduler (dry run by default): the one thing that the wallet signs before you ask."""
    from troth.client.tabs import managing, opening

    purse, configuration = options.purse(), options.configuration(scheduler)
    if web:
        _require_alone(web, broadcast, payer)
        done = carried_out(managing.open_by_wallet(purse, configuration, amount, _show_page))
        tell(done, options.as_json, f"tab {done['tab']} with {done['scheduler']} is open, paid by {done['from']}")
        return
    done = carried_out(managing.open_tab(purse, configuration, amount, payer=payer, broadcast=broadcast))
    tell(done, options.as_json, f"tab {done['tab']} with {done['scheduler']}\n{opening.describe(done)}")


def _require_alone(web: bool, broadcast: bool, payer: str = "") -> None:
    if web and (broadcast or payer):
        raise typer.BadParameter("--web has the browser's wallet send it: leave --broadcast and --payer out.")


def _show_page(address: str) -> None:
    typer.echo(f"sign with your wallet at {address}", err=True)


@grouped
def top_up(
    tab: OneTabArgument,
    amount: Annotated[str, typer.Argument(help="For example 0.05ether, 5usdc or 1000units.")],
    *,
    broadcast: BroadcastOption = False,
    options: PayerOptions,
) -> None:
    """Add to a tab (dry run by default)."""
    from troth.client.tabs import managing, opening

    purse, configuration = options.purse(), options.configuration()
    done = carried_out(managing.top_up(purse, configuration, tab, amount, broadcast=broadcast))
    tell(done, options.as_json, opening.describe(done))


@grouped
def finish(
    tab: TabsArgument = "",
    *,
    broadcast: BroadcastOption = False,
    web: WebOption = False,
    options: PayerOptions,
) -> None:
    """Bring money back from tabs, of older deployments too (dry run by default).

    Closes them, and takes what is left when it is free.
    """
    take_back(options, options.configuration(), tab, broadcast=broadcast, web=web)


def take_back(
    options: PayerOptions, configuration: ClientConfiguration, tab: str, *, broadcast: bool, web: bool
) -> None:
    """What `close` and `finish` do."""
    from troth.client.tabs import managing

    purse = options.purse()
    if web:
        _require_alone(web, broadcast)
        one = carried_out(managing.take_back_by_wallet(purse, configuration, tab, _show_page))
        tell(one, options.as_json, f"{one['tab']}  {one['step']}: done" if one.get("broadcast") else _told(one))
        return
    done = carried_out(managing.take_back(purse, configuration, tab, broadcast=broadcast))
    tell(done, options.as_json, "\n".join(_told(one) for one in done) or f"no tab is in {options.home}")


def _told(one: Mapping[str, Any]) -> str:
    from troth.client.tabs import opening

    head = f"{one['tab'][:12]}  {one['step']:<8}"
    match one["step"]:
        case "nothing":
            return f"{head} there is nothing in it"
        case "wait":
            left = one["closes_at"] - one["block"]
            return f"{head} {one['balance']}, free from block {one['closes_at']} on, in {left} blocks: repeat it then"
        case "elsewhere":
            return f"{head} another machine opened it with this wallet, and may use it: name it to close it"
        case "failed":
            return f"{head} {one['why']}"
        case _:
            later = "; what is left of it is free after the delay: repeat it then" if one["step"] == "close" else ""
            return f"{head} {one['balance']}{later}\n{opening.describe(dict(one))}"


@grouped
def list_tabs(*, options: ClientOptions) -> None:
    """Show what is in each tab and what is not paid yet."""
    from troth.client.tabs import managing

    found = carried_out(managing.list_tabs(options.place(), options.configuration()))
    tell(
        found,
        options.as_json,
        "\n".join(_listed(one) for one in found) or "this client has no tab: `troth client open`",
    )


def _listed(one: Mapping[str, Any]) -> str:
    if "chain" in one:
        money = f"the chain cannot be asked: {one['chain']}"
    elif not one["known"]:
        money = "not opened yet"
    else:
        # Of a tab that closes nothing is left to order with.
        left = f"closing until block {one['closes_at']}" if one["closes_at"] else f"{one['free']} free"
        money = f"{one['balance']} in it, {left}"
    lines = [f"{one['tab']}  with {one['scheduler']}", f"  {money}"]
    if one["elsewhere"]:
        # Neither its book nor its key is here.
        command = f"`troth client close {one['tab'][:12]} --broadcast`"
        shown = f"{one['balance']} in it" if not one["closes_at"] else money
        return f"{lines[0]}\n  {shown}; another machine opened it with this wallet: {command} takes it back"
    # Without the chain nobody knows what a unit is.
    names = ("spent", "unacknowledged", "outstanding")
    spent, answered, most = (one.get(name, f"{one[name + '_units']} units") for name in names)
    counted = len(one["outstanding_orders"])
    lines.append(f"  {one['orders']} orders, {spent} paid, {answered} unacknowledged in {counted}, at most {most}")
    if one["unchecked"]:
        lines.append(f"  {len(one['unchecked'])} ended without their check: `troth client pay` lists them")
    if one["doubt"]:
        lines.append(f"  no more is ordered here: {one['doubt']}")
    return "\n".join(lines)


def trust(
    tab: Annotated[str, typer.Argument(help="Beginning of the tab's id or of its scheduler's address.")],
    yes: Annotated[bool, typer.Option("--yes", help="Order on it again; without it, only show why not.")] = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show why no more is ordered on a tab, and order on it again with --yes."""
    from troth.client.home import Home
    from troth.client.tabs import managing

    found = managing.trust(Home(home.expanduser()), tab, yes=yes)
    tell(found, as_json, _trusted(found))


def _trusted(one: Mapping[str, Any]) -> str:
    head = f"{one['tab']}  with {one['scheduler']}"
    if not one["doubt"]:
        return f"{head}\n  nothing speaks against it"
    stake = f"{one['outstanding_units']} units outstanding in {len(one['outstanding_orders'])} orders"
    ends = "it is ordered on again" if one["trusted"] else "no more is ordered here; --yes lifts that"
    return f"{head}\n  {one['doubt']}\n  {stake}; `troth client receipts` shows them\n  {ends}"


@grouped
def summon(
    order: Annotated[str, typer.Argument(help="Order, or its beginning.")],
    *,
    broadcast: BroadcastOption = False,
    options: PayerOptions,
) -> None:
    """Ask on chain for results or for a check that a scheduler owes (dry run by default).

    Silence convicts it and pays you back.
    """
    from troth.client.orders import terminal
    from troth.client.tabs import opening

    purse, configuration = options.purse(), options.configuration()
    done = carried_out(terminal.summon(purse, configuration, order, broadcast=broadcast))
    about = f"{done['kind']} of {done['order'][:12]}, segment {done['segment']}, blocks {done['first_block']}"
    tell(done, options.as_json, f"{about} to {done['last_block']}\n{opening.describe(done)}")


@grouped
def pay(
    order: Annotated[str, typer.Argument(help="Order, or its beginning; without it, all that wait.")] = "",
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Pay; without it, only say what it costs and why.")] = False,
    options: PayerOptions,
) -> None:
    """Pay answers that ended as `check refused`, so that their tab can go on; only for who was away and knows so.

    Nothing is sent to the chain.
    """
    from troth.client.orders import terminal

    place, configuration = options.place(), options.configuration()
    done = carried_out(terminal.pay_unchecked(place, configuration, options.password_file, order, yes=yes))
    text = "\n".join(_paid(one, yes=yes) for one in done) or "no answer ended without its check"
    tell(done[0] if order else done, options.as_json, text)


def _paid(one: Mapping[str, Any], *, yes: bool) -> str:
    ends = "paid" if one["paid"] else "not paid"
    if not yes and one["fee_units"] is not None:
        ends = "not paid; --yes pays it, though nobody checked it"
    waits = [f"  {one['waits']}"] if one["waits"] and one["fee_units"] is None else []
    return "\n".join([f"{one['order'][:12]}  {one['fee']}", f"  {one['note']}", *waits, f"  {ends}"])


@grouped
def object_to(
    tab: Annotated[str, typer.Argument(help="Beginning of the tab's id or of its scheduler's address.")],
    *,
    broadcast: BroadcastOption = False,
    options: PayerOptions,
) -> None:
    """Object to a claim that shows more than you owe, or strike one (dry run by default).

    Struck is what was not shown when it was asked for.
    """
    from troth.client.orders import terminal
    from troth.client.tabs import opening

    purse, configuration = options.purse(), options.configuration()
    done = carried_out(terminal.object_to(purse, configuration, tab, broadcast=broadcast))
    until = f"{done['excess_units']} units too much, until block {done['last_block']}" if "last_block" in done else ""
    numbers = ", ".join(map(str, done["numbers"]))
    tell(done, options.as_json, f"claim on {done['tab'][:12]}, number {numbers} {until}\n{opening.describe(done)}")
