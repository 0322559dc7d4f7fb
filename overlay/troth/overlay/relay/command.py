"""`troth relay …`: what the operator of a relay runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from troth.transport.command_options import (
    HostOption,
    JsonOption,
    LogLevelOption,
    PortOption,
    folder_path,
    http_address,
)

app = typer.Typer(
    help="Run a relay of the anonymous overlay: it passes sealed cells on and cannot read them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

HomeOption = Annotated[
    Path,
    typer.Option(
        "--home",
        file_okay=False,
        callback=folder_path,
        envvar="TROTH_HOME",
        help="Folder of this relay's configuration and keys.",
    ),
]
DEFAULT_HOME = Path("~/.troth/relay")


@app.command()
def init(
    *,
    home: HomeOption = DEFAULT_HOME,
    host: HostOption = "",
    port: PortOption = 9001,
    address: Annotated[
        str, typer.Option(envvar="TROTH_ADDRESS", help="name:port as others reach it; default: host and port.")
    ] = "",
    metrics_port: Annotated[
        int | None,
        typer.Option(envvar="TROTH_METRICS_PORT", help="Loopback port of health and metrics. Default: none."),
    ] = None,
    committee: Annotated[
        str, typer.Option(envvar="TROTH_COMMITTEE", help="Committee contract, 0x…; without it, directory.toml counts.")
    ] = "",
    rpc: Annotated[
        str,
        typer.Option(
            envvar="TROTH_RPC",
            help="HTTP address of a chain node, to read the committee's members.",
            callback=http_address,
        ),
    ] = "",
    region: Annotated[str, typer.Option(envvar="TROTH_REGION", help="A short word, for example eu-west.")] = "",
    bandwidth: Annotated[int, typer.Option(envvar="TROTH_BANDWIDTH", help="Kilobytes a second it offers.")] = 0,
    proxy: Annotated[
        bool, typer.Option("--proxy/--no-proxy", envvar="TROTH_PROXY", help="Deliver to destinations as a last hop.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Write relay.toml, the keys of operator and handshake, and the TLS identity. Nothing is overwritten.

    Without --host it listens everywhere, or on this machine alone where --address is a loopback address or absent.
    """
    from troth.overlay.relay.initialisation import RelayInitOptions, committee_of, initialise, listening_host

    listed = committee_of(committee, rpc, region, bandwidth)
    here = host or listening_host(address)
    wishes = RelayInitOptions(here, port, address or f"{here}:{port}", metrics_port, proxy, listed)
    _show(initialise(_folder(home), wishes), as_json)


@app.command()
def start(
    home: HomeOption = DEFAULT_HOME,
    log_level: LogLevelOption = "info",
) -> None:
    """Relay until SIGINT or SIGTERM; then no new circuits are taken and those in use are waited for."""
    from troth.overlay.relay.configuration import FILE, load
    from troth.overlay.relay.running import run_until_stopped
    from troth.transport import event_loop
    from troth.transport.listener import require_free
    from troth.transport.logs import configure

    configure(log_level)
    configuration = load(_folder(home))
    file = configuration.folder / FILE
    require_free(configuration.host, configuration.port, f"listen.port in {file}")
    require_free("127.0.0.1", configuration.metrics_port or 0, f"listen.metrics_port in {file}")
    event_loop.run(run_until_stopped(configuration))


@app.command()
def entry(home: HomeOption = DEFAULT_HOME) -> None:
    """Print this relay's [[relay]] table for a directory."""
    from troth.overlay.relay.initialisation import own_entry

    typer.echo(own_entry(_folder(home)), nl=False)


@app.command()
def doctor(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Check configuration, keys, directory and port; each line that fails says how to fix it.

    Exit code 1 if a line fails.
    """
    from troth.overlay.relay.doctor import examine
    from troth.transport.health import tell

    if not tell(examine(_folder(home)), as_json, typer.echo):
        raise typer.Exit(1)


def _folder(home: Path) -> Path:
    return home.expanduser().resolve()


def _show(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result))
        return
    width = max(len(name) for name in result)
    for name, value in result.items():
        typer.echo(f"{name.replace('_', ' '):<{width}}  {value}")
