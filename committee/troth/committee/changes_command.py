"""`troth committee members …`: how somebody joins the committee, leaves it, or moves to another endpoint or key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from troth.committee.reputation_command import DEFAULT_HOME, MemberHomeOption, PayingOptions
from troth.transport.command_options import JsonOption, PasswordOption, grouped, show

app = typer.Typer(
    help="Change who belongs to the committee: more than 2/3 of the members sign (docs/reference/directory.md).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
ChangeArgument = Annotated[Path, typer.Argument(help="The file of the change, which goes from member to member.")]


@app.command()
def propose(
    file: ChangeArgument,
    *,
    add: Annotated[str, typer.Option("--add", help="Who joins, as `troth committee init` prints it.")] = "",
    remove: Annotated[str, typer.Option("--remove", help="The operator who leaves, 0x….")] = "",
    move: Annotated[str, typer.Option("--move", help="Who has another endpoint or TLS key, as for --add.")] = "",
    home: MemberHomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Write the file of a change."""
    from troth.committee.changes import ChangeKind
    from troth.committee.changes import propose as propose_change

    wishes: tuple[tuple[ChangeKind, str], ...] = (("add", add), ("remove", remove), ("move", move))
    given = [(kind, member) for kind, member in wishes if member]
    if len(given) != 1:
        raise typer.BadParameter("Name one change: --add, --remove or --move.")
    ((kind, member),) = given
    show(asyncio.run(propose_change(file, _folder(home), kind, member)), as_json)


@app.command()
def sign(
    file: ChangeArgument,
    *,
    home: MemberHomeOption = DEFAULT_HOME,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add this member's signature to the file."""
    from troth.committee.changes import sign as sign_change

    show(asyncio.run(sign_change(file, _folder(home), password_file)), as_json)


@app.command()
@grouped
def send(
    file: ChangeArgument,
    *,
    paying: PayingOptions,
    home: MemberHomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Bring the change to the contract (dry run by default); members read it within a minute."""
    from troth.committee.changes import send as send_change

    show(asyncio.run(send_change(file, _folder(home), paying.payer())), as_json)


def _folder(home: Path) -> Path:
    return home.expanduser().resolve()
