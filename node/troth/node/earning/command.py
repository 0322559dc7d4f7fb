"""`troth node ask`, `top-up`, `earnings`, `tabs`, `redeem`, `claim`, `notes`: of a node with [market]."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from troth.node.home import DEFAULT_HOME, HomeOption
from troth.transport.command_options import AMOUNT, PRICES, BroadcastOption, JsonOption, PasswordOption, show


def ask(
    segment: Annotated[str, typer.Argument(metavar="[FIRST:END]", help="The segment; without it, show all asks.")] = "",
    prices: Annotated[
        str,
        typer.Argument(
            metavar="[PROMPT,CACHED,WRITTEN]",
            help=PRICES,
        ),
    ] = "",
    *,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show what this node asks on chain, or set it for a segment (dry run by default). It counts for later orders.

    Orders that pay less pass this node over; those that pay more pay what it asks.
    """
    from troth.node.registration.membership import set_ask, show_asks

    if not segment:
        show(show_asks(home), as_json)
        return
    show(set_ask(home, segment, prices, password_file, broadcast=broadcast), as_json)


def top_up(
    amount: Annotated[str, typer.Argument(help=AMOUNT)],
    *,
    owner_keystore: Annotated[
        Path | None,
        typer.Option("--owner-keystore", envvar="TROTH_OWNER_KEYSTORE", help="Who pays; default: the operator."),
    ] = None,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Add stake, for more seats (dry run by default). New seats check and judge once they are seasoned."""
    from troth.node.registration.membership import top_up as add_stake

    show(add_stake(home, amount, owner_keystore, password_file, broadcast=broadcast), as_json)


def earnings(*, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """What was earned today and this week, what is unpaid, per 1,000 tokens; and why no work came, in words."""
    from troth.node.earning.money import earnings as look

    show(look(home), as_json)


def tabs(*, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Tabs with schedulers: what is on them, payable, unpaid, claimed."""
    from troth.node.earning.money import tabs as look

    show(look(home), as_json)


def redeem(
    *,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Redeem every voucher now (dry run by default). The running node does it by itself when it is worth the gas."""
    from troth.node.earning.money import redeem as redeem_all

    show(redeem_all(home, password_file, broadcast=broadcast), as_json)


def claim(
    *,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Claim unacknowledged work now (dry run by default); the running node claims by itself what is late.

    Keep the node running: it answers objections and settles the claim.
    """
    from troth.node.earning.money import claim as claim_all

    show(claim_all(home, password_file, broadcast=broadcast), as_json)


def notes(
    node: Annotated[str, typer.Argument(metavar="[NODE]", help="Operator address; without it, of all nodes.")] = "",
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", dir_okay=False, help="Write the notes here, for `troth audit notes`."),
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """What this node noted of others as their verifier, and with --out the signed records, to be posted.

    They hold no prompt and no answer. Records of several verifiers show together what no single one sees.
    """
    from troth.node.earning.money import notes as look

    show(look(home, node, out), as_json)


def add_to(app: typer.Typer) -> None:
    """Give an app these commands."""
    for command in (ask, top_up, earnings, tabs, redeem, claim, notes):
        app.command()(command)
