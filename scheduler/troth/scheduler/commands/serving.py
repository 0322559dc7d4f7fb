"""`init`, `start`, `status` and `doctor`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from troth.scheduler.home import DEFAULT_HOME, HomeOption, folder_of
from troth.transport.command_options import (
    AMOUNT,
    PRICES,
    BankOption,
    FactoryOption,
    HostOption,
    JsonOption,
    LogLevelOption,
    OverlayAddressOption,
    OverlayPortOption,
    PasswordOption,
    PortOption,
    RpcOption,
    StartBlockOption,
    show,
)

ModelOption = Annotated[
    Path | None,
    typer.Option(envvar="TROTH_MODEL", help="Folder with config, tokenizer and chat template."),
]
EndsOption = Annotated[
    str, typer.Option(envvar="TROTH_ENDS", help="Ends of the segments, for example 15,30; auto: by placement.")
]
PricesOption = Annotated[
    str,
    typer.Option(
        envvar="TROTH_PRICES",
        help=PRICES,
    ),
]
LeastOption = Annotated[
    str, typer.Option(envvar="TROTH_LEAST", help="Top a tab up below this amount; default: a quarter of it.")
]
EndpointOption = Annotated[
    str, typer.Option(envvar="TROTH_ENDPOINT", help="Public https:// URL; default: host and port.")
]
OperatorKeystoreOption = Annotated[
    Path | None, typer.Option(envvar="TROTH_OPERATOR_KEYSTORE", help="Use this keyfile; default: make a new key.")
]
VrfKeystoreOption = Annotated[
    Path | None, typer.Option(envvar="TROTH_VRF_KEYSTORE", help="Use this VRF keyfile; default: make a new key.")
]
CommitteeOption = Annotated[
    str,
    typer.Option(envvar="TROTH_COMMITTEE", help="Committee contract, 0x…: be reached through the overlay as well."),
]
TunnelsOption = Annotated[
    str,
    typer.Option(envvar="TROTH_TUNNELS", help="Ports to lend to nodes that nobody can connect to, such as 20000:64."),
]
TicketsOption = Annotated[
    str, typer.Option(envvar="TROTH_TICKETS", help="Tickets contract, 0x…: be paid by clients that nobody knows, too.")
]
TicketFeeOption = Annotated[
    str, typer.Option(help="What of each ticket pays for the transaction that takes it, in smallest units.")
]


def init(
    *,
    rpc: RpcOption = "",
    class_id: Annotated[str, typer.Option("--class", envvar="TROTH_CLASS", help="Execution class to serve, 0x…")] = "",
    model: ModelOption = None,
    ends: EndsOption = "",
    factory: FactoryOption = "",
    bank: BankOption = "",
    prices: PricesOption = "",
    deposit: Annotated[
        str, typer.Option(envvar="TROTH_DEPOSIT", help=f"What a tab with a node starts with. {AMOUNT}")
    ] = "",
    least: LeastOption = "",
    home: HomeOption = DEFAULT_HOME,
    host: HostOption = "",
    port: PortOption = 8443,
    endpoint: EndpointOption = "",
    start_block: StartBlockOption = 0,
    operator_keystore: OperatorKeystoreOption = None,
    vrf_keystore: VrfKeystoreOption = None,
    committee: CommitteeOption = "",
    overlay_port: OverlayPortOption = 0,
    overlay_address: OverlayAddressOption = "",
    tunnels: TunnelsOption = "",
    tickets: TicketsOption = "",
    ticket_fee: TicketFeeOption = "0",
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the configuration, the keystores and the TLS identity. Nothing is overwritten.

    At a terminal it asks for what was not given.
    """
    from troth.scheduler.commands.initialisation import AskedOptions, SchedulerInitOptions, asked_for, init_market
    from troth.transport.interview import Interview, listening_host

    given = AskedOptions(rpc, factory, class_id, model, ends, endpoint, (prices, deposit, least))
    told, money = asked_for(Interview(), given, port, bank, start_block)
    usual = listening_host(told.endpoint)
    here = host or usual
    wishes = SchedulerInitOptions(
        rpc=told.rpc,
        class_id=told.class_id,
        model=told.folder,
        ends=told.ends,
        host=here,
        port=port,
        endpoint=told.endpoint or f"https://{here}:{port}",
        start_block=start_block,
        operator_keystore=operator_keystore,
        vrf_keystore=vrf_keystore,
        committee=committee,
        overlay_port=overlay_port,
        overlay_address=overlay_address,
        tunnels=tunnels,
        tickets=tickets,
        ticket_fee=ticket_fee,
    )
    show(init_market(folder_of(home), wishes, (told.factory, bank), money, password_file), as_json=as_json)


def start(
    home: HomeOption = DEFAULT_HOME,
    password_file: PasswordOption = None,
    log_level: LogLevelOption = "info",
) -> None:
    """Serve until SIGINT or SIGTERM; then no more orders are taken and what is under way is finished."""
    from troth.scheduler.running import serve_market
    from troth.transport import event_loop
    from troth.transport.logs import configure

    configure(log_level)
    event_loop.run(serve_market(folder_of(home), password_file))


def status(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Registration, stake, credit, gas and unfinished orders. Exit code 1 if something keeps it from serving."""
    from troth.scheduler.commands.status import status_of_market
    from troth.scheduler.pool.showing import brief

    result: dict[str, Any] = asyncio.run(status_of_market(folder_of(home)))
    placement = result["placement"]
    show(result if as_json or placement is None else {**result, "placement": brief(placement)}, as_json=as_json)
    if result["problems"]:
        sys.exit(1)


def doctor(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Check files, keys, port, chain, clock, classes, stake and gas; each line that fails says how to fix it.

    Exit code 1 if a line fails.
    """
    from troth.scheduler.commands.doctor import examine
    from troth.transport.health import tell

    if not tell(asyncio.run(examine(folder_of(home))), as_json, typer.echo):
        raise typer.Exit(1)
