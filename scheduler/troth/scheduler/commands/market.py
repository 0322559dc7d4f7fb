"""`tabs`, `prices`, `earnings`, `redeem`, `top-up` and `finish`: what a scheduler of a market holds, asks and gets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from troth.scheduler.home import DEFAULT_HOME, HomeOption, folder_of
from troth.transport.command_options import AMOUNT, BroadcastOption, JsonOption, PasswordOption, show


def tabs(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Tabs of clients and with nodes: what they hold, what is owed, what is not acknowledged."""
    from troth.scheduler.commands.status import tabs_of_market

    show(asyncio.run(tabs_of_market(folder_of(home))), as_json=as_json)


def prices(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """The price list as it is configured, and where it is published."""
    from troth.scheduler.commands.status import prices_of_market

    show(prices_of_market(folder_of(home)), as_json=as_json)


def earnings(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """What answers of a day and a week cost, what clients have not paid yet, and what nodes were paid."""
    from troth.scheduler.commands.money import earnings_of_market

    show(asyncio.run(earnings_of_market(folder_of(home))), as_json=as_json)


def redeem(
    home: HomeOption = DEFAULT_HOME,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn clients' vouchers into credit, all that pay something now (dry run by default)."""
    from troth.scheduler.commands.money import redeem_of_market

    show(asyncio.run(redeem_of_market(folder_of(home), password_file, broadcast=broadcast)), as_json=as_json)


def top_up(  # noqa: PLR0917
    amount: Annotated[str, typer.Argument(help=AMOUNT)],
    node: Annotated[str, typer.Option("--node", help="Add to the tab with this node, not to the stake.")] = "",
    keystore: Annotated[
        Path | None,
        typer.Option("--keystore", envvar="TROTH_KEYSTORE", help="Keyfile of who pays; default: the operator's."),
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add to the stake, or to the tab with one node (dry run by default)."""
    from troth.scheduler.commands.money import top_up_of_market

    work = top_up_of_market(folder_of(home), amount, (keystore, password_file), node, broadcast=broadcast)
    show(asyncio.run(work), as_json=as_json)


def finish(
    home: HomeOption = DEFAULT_HOME,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Bring money back from tabs with nodes (dry run by default): those that left, or all once this scheduler leaves.

    A tab on which something is owed is closed later.
    """
    from troth.scheduler.commands.money import finish_of_market

    show(asyncio.run(finish_of_market(folder_of(home), password_file, broadcast=broadcast)), as_json=as_json)
