"""`troth explorer serve`, `export`, `read` and `show`."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Annotated

import typer

from troth.audit.options import OrganisationsOption, ReputationOption, TicketsOption, audited_services, read_address
from troth.audit.services import AuditedServices
from troth.explorer.errors import ExplorerError
from troth.explorer.exporting import PAGES_LIMIT, export
from troth.explorer.opening import is_url
from troth.explorer.pages import application
from troth.explorer.reading import INDEX_FILE, ReaderProcess, ReaderSettings, read
from troth.explorer.services import ALL_QUERIES
from troth.explorer.site import Site
from troth.protocol.types import Hash32
from troth.transport.command_options import (
    BankOption,
    FactoryOption,
    JsonOption,
    RpcOption,
    StartBlockOption,
    folder_path,
)
from troth.transport.event_loop import run
from troth.transport.listener import require_free
from troth.transport.logs import configure
from troth.transport.server import TlsServer, run_until_stopped

DEFAULT_HOME = Path("~/.troth/explorer")
DEFAULT_PORT = 8780

HomeOption = Annotated[
    Path,
    typer.Option(
        "--home",
        file_okay=False,
        callback=folder_path,
        envvar="TROTH_EXPLORER_HOME",
        help="Folder of the index; one for each deployment.",
    ),
]
DatabaseOption = Annotated[
    str,
    typer.Option(
        "--database",
        envvar="TROTH_EXPLORER_DATABASE",
        metavar="URL",
        help="Keep the index in this Postgres database, postgresql://USER@HOST/NAME, and not in the home folder.",
    ),
]
CreatedByOption = Annotated[
    str,
    typer.Option(
        "--created-by",
        envvar="TROTH_CREATED_BY",
        metavar="0x…",
        help="Transaction that created the factory, whose gas is counted, too.",
    ),
]
IntervalOption = Annotated[
    float, typer.Option("--interval", envvar="TROTH_INTERVAL", min=1, help="Seconds between two audits.")
]

app = typer.Typer(
    no_args_is_help=True, help="Look at a deployment in a browser: who serves, logs, cases, slashes. Needs no key."
)


@app.command()
def serve(
    *,
    factory: FactoryOption,
    bank: BankOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    start_block: StartBlockOption = 0,
    created_by: CreatedByOption = "",
    tickets: TicketsOption = "",
    organisations: OrganisationsOption = "",
    reputation: ReputationOption = "",
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = "",
    host: Annotated[
        str, typer.Option("--host", envvar="TROTH_HOST", help="Address to listen on; put a web server before it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", envvar="TROTH_PORT", help="Port to listen on.")] = DEFAULT_PORT,
    interval: IntervalOption = 15.0,
) -> None:
    """Read a deployment and its schedulers' logs, and serve pages about them. It needs no key and signs nothing."""
    configure("WARNING")
    require_free(host, port, "--port")
    beside = audited_services(rpc, tickets, organisations, start_block, reputation)
    settings = _settings(
        *(factory, bank, rpc, start_block, home, beside), database=database, created_by=created_by, interval=interval
    )
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    server = TlsServer(application(lambda: Site.open(settings.index, settings.home)), None, host, port)
    reader = ReaderProcess(settings)
    reader.start()
    try:
        run(run_until_stopped(server, lambda taken: typer.echo(f"the explorer is at http://{host}:{taken}/")))
    finally:
        reader.stop()


@app.command(name="read")
def read_once(
    *,
    factory: FactoryOption,
    bank: BankOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    start_block: StartBlockOption = 0,
    created_by: CreatedByOption = "",
    tickets: TicketsOption = "",
    organisations: OrganisationsOption = "",
    reputation: ReputationOption = "",
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = "",
) -> None:
    """Read the deployment to its newest block, examine all logs, audit once, and leave."""
    beside = audited_services(rpc, tickets, organisations, start_block, reputation)
    settings = _settings(factory, bank, rpc, start_block, home, beside, database=database, created_by=created_by)
    asyncio.run(read(settings, once=True))
    site = Site.open(settings.index, settings.home)
    typer.echo(site.freshness()["text"])
    site.close()


@app.command(name="export")
def export_pages(
    folder: Annotated[Path, typer.Argument(help="An empty folder, or that of an earlier export.")],
    *,
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = "",
    most: Annotated[int, typer.Option("--most", min=10, max=50_000, help="Pages at most.")] = PAGES_LIMIT,
) -> None:
    """Write the pages as files that any web server serves, from what `read` or `serve` has indexed."""
    site = _site(home, database, written=True)
    pages = export(site, folder.expanduser(), most)
    typer.echo(f"{pages} pages in {folder}: {site.freshness()['text']}")
    site.close()


def _named_figure(name: str) -> str:
    if name not in ALL_QUERIES:
        raise typer.BadParameter(f"There is no figure {name}; there are {', '.join(ALL_QUERIES)}.")
    return name


def _chosen(**given: str | None) -> dict[str, str]:
    return {name: value for name, value in given.items() if value}


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="FIGURE", callback=_named_figure, help=", ".join(ALL_QUERIES))],
    *,
    home: HomeOption = DEFAULT_HOME,
    database: DatabaseOption = "",
    most: Annotated[int, typer.Option("--most", min=1, max=1_000_000, help="Rows at most.")] = 100,
    after: Annotated[str, typer.Option("--after", help="Go on after this cursor.")] = "",
    scheduler: Annotated[str | None, typer.Option("--scheduler", help="Of this scheduler.")] = None,
    operator: Annotated[str | None, typer.Option("--operator", help="Of this node or scheduler.")] = None,
    node: Annotated[str | None, typer.Option("--node", help="About this node.")] = None,
    party: Annotated[str | None, typer.Option("--party", help="About this party.")] = None,
    execution_class: Annotated[str | None, typer.Option("--class", help="Of this execution class.")] = None,
    order: Annotated[str | None, typer.Option("--order", help="Of this order.")] = None,
    case: Annotated[str | None, typer.Option("--case", help="Of this case.")] = None,
    dispute: Annotated[str | None, typer.Option("--dispute", help="Of this dispute.")] = None,
    entry: Annotated[str | None, typer.Option("--entry", help="Of log entries with this number.")] = None,
    state: Annotated[str | None, typer.Option("--state", help="drawn, rejected, wrong, live, banned, …")] = None,
    part: Annotated[str | None, typer.Option("--part", help="infer or check.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print a figure of the pages as CSV, or as JSON."""
    options = _chosen(
        **{"scheduler": scheduler, "operator": operator, "node": node, "party": party, "class": execution_class},
        **{"order": order, "case": case, "dispute": dispute, "entry": entry, "state": state, "part": part},
    )
    site = _site(home, database)
    figure = site.figure(name, options, after, most)
    typer.echo(figure.as_json() if as_json else figure.as_csv(), nl=False)
    if figure.cursor and not as_json:
        typer.echo(f"there is more: --after {figure.cursor}", err=True)
    site.close()


def _settings(  # noqa: PLR0917
    factory: str,
    bank: str,
    rpc: str,
    start: int,
    home: Path,
    services: AuditedServices,
    *,
    database: str,
    created_by: str,
    interval: float = 15.0,
) -> ReaderSettings:
    named = read_address(bank) if bank else None
    place = _url(database) if database else ""
    created = _transaction(created_by) if created_by else None
    factory_at = read_address(factory)
    return ReaderSettings(rpc, factory_at, named, start, home.expanduser(), interval, services, place, created)


def _transaction(text: str) -> Hash32:
    if not re.fullmatch("0x[0-9a-fA-F]{64}", text):
        raise typer.BadParameter(f"--created-by is the hash of a transaction, 0x and 64 digits, and not {text[:80]}.")
    return Hash32(bytes.fromhex(text[2:]))


def _url(database: str) -> str:
    if not is_url(database):
        # Not shown: what is no URL may be a password all the same.
        raise typer.BadParameter("The database is named by a URL, postgresql://USER@HOST/NAME.")
    return database


def _site(home: Path, database: str, *, written: bool = False) -> Site:
    folder = home.expanduser()
    if database:
        return Site.open(_url(database), folder, written=written)
    index = folder / INDEX_FILE
    if not index.is_file():
        raise ExplorerError("There is no index yet", index, "Run `troth explorer read --network FILE` first.")
    return Site.open(index, written=written)
