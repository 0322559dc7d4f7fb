"""`troth committee …`: what the operator of a committee member runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from troth.committee import changes_command, reputation_command, tickets_command
from troth.transport.command_options import (
    BankOption,
    BroadcastOption,
    HostOption,
    JsonOption,
    LogLevelOption,
    PasswordOption,
    PortOption,
    RpcOption,
    StartBlockOption,
    folder_path,
    show,
)

app = typer.Typer(
    help="Run a member of the directory's committee: it checks relays and signs the list of them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(reputation_command.app, name="reputation")
app.add_typer(tickets_command.app, name="tickets")
app.add_typer(changes_command.app, name="members")

HomeOption = Annotated[
    Path,
    typer.Option(
        "--home",
        file_okay=False,
        callback=folder_path,
        envvar="TROTH_HOME",
        help="Folder of this member's configuration, keys and state.",
    ),
]
DEFAULT_HOME = Path("~/.troth/committee")


@app.command()
def init(
    *,
    rpc: RpcOption = "",
    endpoint: Annotated[str, typer.Option(envvar="TROTH_ENDPOINT", help="Public https:// URL of this member.")] = "",
    committee: Annotated[
        str, typer.Option(envvar="TROTH_COMMITTEE", help="Committee contract, 0x…; none before it is deployed.")
    ] = "",
    factory: Annotated[
        str,
        typer.Option(envvar="TROTH_FACTORY", help="The market's factory, 0x…; without it no destination is listed."),
    ] = "",
    bank: BankOption = "",
    start_block: StartBlockOption = 0,
    home: HomeOption = DEFAULT_HOME,
    host: HostOption = "",
    port: PortOption = 8543,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write committee.toml, the operator's keystore and the TLS identity. Nothing is overwritten.

    At a terminal it asks for what was not given.
    """
    from troth.committee.configuration import Bonding
    from troth.committee.initialisation import MemberInitOptions, initialise
    from troth.transport.interview import Interview, listening_host, outward_host

    interview = Interview()
    rpc = interview.text(rpc, "--rpc", "HTTP address of a chain node; --network FILE names it, too")
    usual = f"https://{outward_host(rpc)}:{port}"
    endpoint = interview.text(endpoint, "--endpoint", "Address by which others reach this member", default=usual)
    here = host or listening_host(endpoint)
    wishes = MemberInitOptions(rpc, committee, Bonding(factory, bank, start_block), here, port, endpoint)
    show(initialise(_folder(home), wishes, password_file), as_json)


@app.command()
def deploy(
    *,
    rpc: RpcOption,
    member: Annotated[
        list[str], typer.Option(help="A first member as `init` prints it: operator,0xtlskeyhash,https://… Repeat it.")
    ],
    keystore: Annotated[Path, typer.Option(envvar="TROTH_KEYSTORE", help="Keyfile of the account that pays.")],
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Deploy the Committee contract with its first members (dry run by default)."""
    from troth.committee.initialisation import deploy as deploy_contract

    work = deploy_contract(rpc, member, keystore.expanduser(), password_file, broadcast=broadcast)
    show(asyncio.run(work), as_json)


@app.command()
def start(
    home: HomeOption = DEFAULT_HOME,
    password_file: PasswordOption = None,
    log_level: LogLevelOption = "info",
) -> None:
    """Serve lists, and rate nodes where committee.toml has [reputation], until SIGINT or SIGTERM."""
    from troth.committee.running import serve
    from troth.transport import event_loop
    from troth.transport.logs import configure

    configure(log_level)
    event_loop.run(serve(_folder(home), password_file))


@app.command()
def status(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """The committee on chain, and which list each member serves."""
    from troth.committee.examining import status_of

    show(asyncio.run(status_of(_folder(home))), as_json)


@app.command()
def doctor(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Check configuration, keys, chain and lists; each line that fails says how to fix it.

    Exit code 1 if a line fails.
    """
    from troth.committee.examining import examine
    from troth.transport.health import tell

    if not tell(asyncio.run(examine(_folder(home))), as_json, typer.echo):
        raise typer.Exit(1)


def _folder(home: Path) -> Path:
    return home.expanduser().resolve()
