"""`troth node`: set up, register, serve, watch, move, leave."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from troth.node.earning.command import add_to
from troth.node.engine.command import engine_app
from troth.node.home import DEFAULT_HOME, HomeOption
from troth.transport.command_options import (
    AMOUNT,
    PRICES,
    BankOption,
    BroadcastOption,
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

app = typer.Typer(no_args_is_help=True, help="Run a node: set up, register, serve, leave.")
app.add_typer(engine_app, name="engine")
add_to(app)

OwnerKeystore = Annotated[
    Path | None,
    typer.Option(
        "--owner-keystore",
        envvar="TROTH_OWNER_KEYSTORE",
        help="Keyfile of the owner, who pays the stake. Default: keys/owner.json in the home, if it is there.",
    ),
]
EngineOption = Annotated[
    str,
    typer.Option("--engine", envvar="TROTH_ENGINE", help="torch for any slice; vllm for whole models."),
]
OwnerPassword = Annotated[
    Path | None,
    typer.Option(
        "--owner-password-file",
        envvar="TROTH_OWNER_PASSWORD_FILE",
        help="Its password's file. Default: that of --password-file.",
    ),
]


LayersOption = Annotated[
    str,
    typer.Option(
        "--slice", envvar="TROTH_SLICE", help="Layers to host, FIRST:END without END; 0:15 are the first fifteen."
    ),
]
SegmentsOption = Annotated[
    str, typer.Option("--segments", envvar="TROTH_SEGMENTS", help="Segments to join, such as 0:15,5:15.")
]
EndpointOption = Annotated[
    str, typer.Option("--endpoint", envvar="TROTH_ENDPOINT", help="Public https:// address; default from host.")
]
ImportKeyOption = Annotated[
    Path | None, typer.Option("--import-key", envvar="TROTH_IMPORT_KEY", help="Use this operator keyfile.")
]
CommitteeOption = Annotated[
    str,
    typer.Option("--committee", envvar="TROTH_COMMITTEE", help="Committee contract, 0x…: be an entry of the overlay."),
]


TunnelOption = Annotated[
    str,
    typer.Option(
        "--tunnel", envvar="TROTH_TUNNEL", help="Scheduler, 0x…, that lends an endpoint: nothing need reach this node."
    ),
]


RouterOption = Annotated[
    bool,
    typer.Option("--router", help="Ask the router for the endpoint's port while it runs, by PCP, NAT-PMP or UPnP."),
]


AskForAllOption = Annotated[
    str, typer.Option("--ask", envvar="TROTH_ASK", help=f"{PRICES} For all layers; `register` uses it.")
]
NewOwnerOption = Annotated[
    bool | None,
    typer.Option("--new-owner/--no-new-owner", help="Make a key for the owner, who pays the stake: keys/owner.json."),
]
OtherEngineOption = Annotated[
    str, typer.Option("--engine", envvar="TROTH_ENGINE", help="torch or vllm, whatever node.toml says.")
]
NoVerifyWeightsOption = Annotated[
    bool,
    typer.Option(
        "--no-verify-weights",
        envvar="TROTH_NO_VERIFY_WEIGHTS",
        help="Serve the folder unchecked. If it is not the registered model, your stake is slashed.",
    ),
]
AutoOption = Annotated[
    bool,
    typer.Option(
        "--auto", envvar="TROTH_AUTO", help="Host what the scheduler named in node.toml's [auto] would have hosted."
    ),
]
StakeOption = Annotated[
    str, typer.Option("--stake", envvar="TROTH_STAKE", help="With --auto: as for `troth node register`.")
]


@app.command()
def init(
    *,
    factory: FactoryOption = "",
    bank: BankOption = "",
    class_id: Annotated[str, typer.Option("--class", envvar="TROTH_CLASS", help="Id of the execution class.")] = "",
    model: Annotated[str, typer.Option("--model", envvar="TROTH_MODEL", help="Name or path of the model folder.")] = "",
    layers: LayersOption = "",
    segments: SegmentsOption = "",
    ask: AskForAllOption = "",
    new_owner: NewOwnerOption = None,
    rpc: RpcOption = "",
    host: HostOption = "",
    port: PortOption = 9443,
    endpoint: EndpointOption = "",
    tunnel: TunnelOption = "",
    router: RouterOption = False,
    engine: EngineOption = "torch",
    device: Annotated[str, typer.Option("--device", envvar="TROTH_DEVICE", help="cpu, cuda or mps.")] = "cpu",
    threads: Annotated[int, typer.Option("--threads", envvar="TROTH_THREADS", help="0 lets torch decide.")] = 0,
    start_block: StartBlockOption = 0,
    import_key: ImportKeyOption = None,
    committee: CommitteeOption = "",
    overlay_port: OverlayPortOption = 0,
    overlay_address: OverlayAddressOption = "",
    password_file: PasswordOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Write node.toml, the operator's keyfile and the TLS identity into the home folder.

    At a terminal it asks for what was not given. Elsewhere --network, --class, --model and --slice must be given.
    """
    from troth.node.registration.first_steps import Wanted, options_of, wanted_of
    from troth.node.registration.setup import require_unconfigured, set_up
    from troth.transport.interview import Interview

    require_unconfigured(home)
    interview, given = Interview(), Wanted(class_id, model, layers, endpoint, ask, tunnel)
    wanted, place = wanted_of(interview, home, (rpc, factory, bank, start_block), port, given)
    choices = options_of(
        wanted,
        place,
        (host, port),
        segments,
        device=device,
        threads=threads,
        start_block=start_block,
        engine=engine,
        committee=committee,
        overlay_port=overlay_port,
        overlay_address=overlay_address,
        bank=bank,
        router=router,
    )
    made_owner = interview.confirm(
        new_owner, "--new-owner", "Make a key for the owner, who pays the stake and can take it back?"
    )
    show(set_up(home, choices, import_key, password_file, new_owner=made_owner), as_json)


@app.command()
def register(
    *,
    owner_keystore: OwnerKeystore = None,
    owner_password_file: OwnerPassword = None,
    payout: Annotated[str, typer.Option("--payout", envvar="TROTH_PAYOUT", help="Default: the owner.")] = "",
    stake: Annotated[str, typer.Option("--stake", envvar="TROTH_STAKE", help=f"{AMOUNT} Default: two seats.")] = "",
    asks: Annotated[
        list[str] | None,
        typer.Option(
            "--ask",
            help=f"{PRICES} For all segments; or FIRST:END=PROMPT,CACHED,WRITTEN for one, repeatable.",
        ),
    ] = None,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Stake and join the groups of the configured segments (dry run by default)."""
    from troth.node.registration import membership

    told = membership.register(
        home,
        owner_keystore,
        owner_password_file,
        password_file,
        payout=payout,
        stake=stake,
        asks=asks or [],
        broadcast=broadcast,
    )
    show(told, as_json)


@app.command("serve", hidden=True)
@app.command("run", hidden=True)
@app.command()
def start(
    *,
    password_file: PasswordOption = None,
    engine: OtherEngineOption = "",
    no_verify_weights: NoVerifyWeightsOption = False,
    auto: AutoOption = False,
    owner_keystore: OwnerKeystore = None,
    owner_password_file: OwnerPassword = None,
    stake: StakeOption = "",
    broadcast: BroadcastOption = False,
    log_level: LogLevelOption = "INFO",
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Serve until SIGTERM or SIGINT. Ready when /readyz on the endpoint answers 200.

    With --auto a node that is not registered yet asks its scheduler for a slice, and registers with --broadcast.
    """
    import asyncio
    import gc

    # A fifth of the start is collections over modules that stay for good; they are switched on again when it is ready.
    gc.disable()
    from troth.chain.keystore import load_account, read_password
    from troth.node.configuration import FILE, load, with_engine
    from troth.node.engine.loading import require_engine
    from troth.node.orders.running import RunningNode
    from troth.transport import event_loop
    from troth.transport.listener import require_free
    from troth.transport.logs import configure

    configure(log_level)
    configuration = with_engine(load(home), engine)
    require_free(configuration.host, configuration.port, f"listen.port in {home / FILE}")
    require_engine(configuration)
    password = read_password(password_file, purpose="the operator's keystore")
    key = load_account(configuration.operator_keystore, password)

    if auto:
        from troth.node.pool.joining import placed
        from troth.node.registration.keyfiles import open_keystore
        from troth.node.registration.setup import OWNER_KEY

        owner = None
        if owner_keystore is None and (home / OWNER_KEY).exists():
            owner_keystore = home / OWNER_KEY
        if owner_keystore is not None:
            owner = open_keystore(owner_keystore, owner_password_file or password_file, "the owner", "--owner-keystore")
        found = asyncio.run(placed(configuration, key, owner, stake, broadcast=broadcast))
        if isinstance(found, dict):
            show(found, as_json=False)
            return
        configuration = found
    event_loop.run(RunningNode(configuration, key, verify_weights=not no_verify_weights, auto=auto).run())


@app.command()
def status(*, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Stake, groups and credit on chain; readiness of the process."""
    from troth.node.inspection import status as inspection

    show(inspection.status(home), as_json)


@app.command()
def doctor(*, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Check chain, clock, device, model, port, stake and gas; each line that fails says how to fix it.

    Exit code 1 if a line fails.
    """
    from troth.node.inspection.status import examining
    from troth.transport.health import tell

    def say(what: str) -> None:
        if not as_json:
            typer.echo(f"...  {what}", err=True)

    if not tell(examining(home, say=say), as_json, typer.echo):
        raise typer.Exit(1)


@app.command()
def accuse(
    what: Annotated[str, typer.Argument(metavar="FILE|ORDER", help="Evidence with rows, or a rejected order's id.")],
    *,
    imprints: Annotated[
        Path | None,
        typer.Option("--imprints", help="What the node signed of imprints: no row is shown, and --key proves."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", envvar="TROTH_IMPRINT_KEY", help="Folder of the deployment's proving key."),
    ] = None,
    snarkjs: Annotated[
        str, typer.Option("--snarkjs", envvar="TROTH_SNARKJS", help="The program that proves.")
    ] = "snarkjs",
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="For one proof, at most.")] = 600,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Prove that a token of an answer is wrong, and convict its node alone (dry run by default).

    The proof holds against any majority and needs no bond. FILE is evidence with the answer's rows inside or beside it;
    ORDER is one that this node rejected. Exit 4: no token is wrong by more than honest machines differ. The states from
    which tokens follow may be wrong all the same: `troth node dispute` looks at those.
    """
    from troth.cases.errors import NothingToDo
    from troth.node.court.accusing_command import accuse_by
    from troth.node.court.imprinting_command import hidden_proof

    hidden = hidden_proof(imprints, key, snarkjs, seconds)
    try:
        show(accuse_by(home, what, password_file, hidden, broadcast=broadcast), as_json)
    except NothingToDo as nothing:
        typer.echo(str(nothing), err=True)
        raise typer.Exit(4) from nothing


@app.command()
def dispute(
    what: Annotated[str, typer.Argument(metavar="FILE|ORDER", help="Evidence with rows, or a rejected order's id.")],
    *,
    segment: Annotated[
        int | None, typer.Option("--segment", min=0, help="Segment whose rows are wrong. Default: the last.")
    ] = None,
    position: Annotated[
        int | None, typer.Option("--position", min=0, help="Row to dispute. Default: the first that is wrong.")
    ] = None,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Dispute a row that a node signed, before the contract, by arithmetic alone (dry run by default).

    Shows what it costs and how long it takes. With --broadcast the dispute is opened, and this node's process plays it:
    keep it running. The bond comes back when the node is convicted, and is lost to it if this node falls silent.
    Exit 4: no row is wrong by more than honest machines differ.
    """
    from troth.cases.errors import NothingToDo
    from troth.node.court.dispute_command import dispute_by

    try:
        show(
            dispute_by(home, what, password_file, segment=segment, position=position, broadcast=broadcast),
            as_json,
        )
    except NothingToDo as nothing:
        typer.echo(str(nothing), err=True)
        raise typer.Exit(4) from nothing


@app.command()
def page(
    *,
    port: Annotated[
        int, typer.Option("--port", envvar="TROTH_PAGE_PORT", min=1, max=65535, help="Port on 127.0.0.1.")
    ] = 9480,
    log: Annotated[
        Path | None, typer.Option("--log", envvar="TROTH_NODE_LOG", help="The node's log, whose end is shown.")
    ] = None,
    home: HomeOption = DEFAULT_HOME,
) -> None:
    """Serve a page for the operator on this machine alone: earnings, work, checks, and the one next thing to do."""
    import asyncio

    from troth.node.inspection.page import serve

    asyncio.run(serve(home, port, log, lambda place: typer.echo(f"{place}  (Ctrl-C ends it)", err=True)))


@app.command()
def move(
    layers: Annotated[str, typer.Argument(metavar="FIRST:END", help="Layers to host; END is not part of them.")],
    *,
    segment: Annotated[
        list[str] | None, typer.Option("--segment", help="Segment to join, FIRST:END; repeatable. Default: all of it.")
    ] = None,
    asks: Annotated[
        list[str] | None,
        typer.Option("--ask", help="As for `register`. Default: what it asks now, by layers."),
    ] = None,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Host other layers from the next block on (dry run by default). A running node follows without a restart.

    Former layers are kept for as long as orders may ask for them. A changed slice stays for as many blocks as a
    reference block may be old. Seats in groups that are new season again before they check or judge.
    """
    from troth.node.configuration import segment_of
    from troth.node.registration import membership

    hosted = segment_of(layers)
    segments = tuple(segment_of(text) for text in segment or ()) or (hosted,)
    show(membership.move(home, hosted, segments, asks or [], password_file, broadcast=broadcast), as_json)


@app.command()
def reach(
    *,
    endpoint: Annotated[str, typer.Option("--endpoint", help="Public https:// address of this node's own.")] = "",
    tunnel: TunnelOption = "",
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Be reached at another address, or through another scheduler (dry run by default). Then restart the node."""
    from troth.node.registration.reach import change_reach

    show(change_reach(home, endpoint, tunnel, password_file, broadcast=broadcast), as_json)


@app.command("leave", hidden=True)
@app.command("exit")
def exit_(
    *,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Leave all groups and start the unbonding period (dry run by default). Serve on until nothing is open any more."""
    from troth.node.registration import membership

    show(membership.leave(home, password_file, broadcast=broadcast), as_json)


@app.command()
def withdraw(
    *,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Pay stake and credit out to the payout address after the unbonding period (dry run by default)."""
    from troth.node.registration import membership

    show(membership.take_out(home, password_file, broadcast=broadcast), as_json)
