"""`register`, `exit`, `withdraw` and `claim`: dry runs until --broadcast."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from troth.scheduler.home import DEFAULT_HOME, HomeOption, folder_of
from troth.transport.command_options import AMOUNT, BroadcastOption, JsonOption, PasswordOption, show


def register(
    *,
    owner_keystore: Annotated[
        Path, typer.Option(envvar="TROTH_OWNER_KEYSTORE", help="Keyfile of the cold owner, who pays the stake.")
    ],
    home: HomeOption = DEFAULT_HOME,
    owner_password_file: Annotated[
        Path | None,
        typer.Option(
            envvar="TROTH_OWNER_PASSWORD_FILE",
            help="File with the owner keystore's password. Default: that of --password-file.",
        ),
    ] = None,
    password_file: PasswordOption = None,
    payout: Annotated[str | None, typer.Option(envvar="TROTH_PAYOUT", help="Payout address; default: owner.")] = None,
    stake: Annotated[str, typer.Option(envvar="TROTH_STAKE", help=f"{AMOUNT} Default: twice the minimum.")] = "",
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Register this scheduler with its VRF key, endpoint and stake (dry run by default).

    One that is registered gets the stake that it lacks, or --stake, on top of what it has.
    """
    from troth.scheduler.commands.registering import Owner, register_in_market

    owner = Owner(owner_keystore.expanduser(), owner_password_file or password_file, payout, stake)
    work = register_in_market(folder_of(home), owner, password_file, broadcast=broadcast)
    show(asyncio.run(work), as_json=as_json)


def leave(
    home: HomeOption = DEFAULT_HOME,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Leave: no order is taken any more, and the unbonding period starts (dry run by default).

    What is owed is still served: keep the process running until `troth scheduler status` shows nothing unfinished.
    """
    from troth.scheduler.commands.money import exit_of_market

    show(asyncio.run(exit_of_market(folder_of(home), password_file, broadcast=broadcast)), as_json=as_json)


def withdraw(
    home: HomeOption = DEFAULT_HOME,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Pay stake and credit out to the payout address after the unbonding period (dry run by default)."""
    from troth.scheduler.commands.money import withdraw_of_market

    show(asyncio.run(withdraw_of_market(folder_of(home), password_file, broadcast=broadcast)), as_json=as_json)


def claim(
    home: HomeOption = DEFAULT_HOME,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Claim what clients have not acknowledged, however young (dry run by default)."""
    from troth.scheduler.commands.money import claim_of_market

    show(asyncio.run(claim_of_market(folder_of(home), password_file, broadcast=broadcast)), as_json=as_json)
