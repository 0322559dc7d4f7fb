"""`troth client`: a wallet, and questions paid from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from troth.client.chat_command import chat
from troth.client.defaults import LEAST_OUTSIDE, LEAST_SEATS
from troth.client.gateway_command import serve
from troth.client.options import (
    DEFAULT_HOME,
    ClassOption,
    CommitteeOption,
    DirectOption,
    HomeOption,
    ModelOption,
    OverlayOption,
    SchedulerOption,
    carried_out,
    mode_of,
    read_configuration,
    tell,
)
from troth.client.orders.case_command import case
from troth.client.tabs.command import (
    finish,
    list_tabs,
    object_to,
    open_tab,
    pay,
    summon,
    top_up,
    trust,
)
from troth.client.tickets.command import TicketsOption
from troth.client.tickets.command import app as tickets_app
from troth.transport.command_options import (
    BankOption,
    FactoryOption,
    JsonOption,
    PasswordOption,
    RpcOption,
    StartBlockOption,
)

app = typer.Typer(no_args_is_help=True, help="Ask a model and pay from a wallet; every answer is verified.")
app.command()(serve)
app.command("ask", help="Ask one question; the answer streams, the verdict follows. Without one it is `chat`.")(chat)
app.command()(chat)
app.command("open")(open_tab)
app.command("top-up")(top_up)
app.command("tabs")(list_tabs)
app.command()(finish)
app.command("close", help="Close tabs and bring back what is left (dry run by default); the same as `finish`.")(finish)
app.command()(trust)
app.command()(summon)
app.command()(pay)
app.command("object")(object_to)
app.command()(case)
app.add_typer(tickets_app, name="tickets")


@app.command()
def init(  # noqa: PLR0917
    factory: FactoryOption = "",
    rpc: RpcOption = "",
    scheduler: SchedulerOption = "",
    execution_class: ClassOption = "",
    start_block: StartBlockOption = 0,
    committee: CommitteeOption = "",
    direct: DirectOption = None,
    region: Annotated[
        str, typer.Option("--region", envvar="TROTH_REGION", help="Prefer relays of this region, if there are enough.")
    ] = "",
    tickets: TicketsOption = "",
    bank: BankOption = "",
    seats: Annotated[int, typer.Option("--seats", min=0, help="Least seasoned seats in a group.")] = LEAST_SEATS,
    outside: Annotated[
        int,
        typer.Option(
            "--outside", min=0, max=10_000, help="Least share of a group outside its largest owners, in basis points."
        ),
    ] = LEAST_OUTSIDE,
    import_key: Annotated[
        Path | None,
        typer.Option("--import-key", envvar="TROTH_IMPORT_KEY", help="Keyfile to copy, opened with the same password."),
    ] = None,
    password_file: PasswordOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Create the wallet and client.toml. At a terminal it asks for what was not given."""
    from troth.client.configuration import DEFAULT_RPC, ClientConfiguration, save
    from troth.client.home import Home
    from troth.client.market_table import MarketTable
    from troth.client.wallet import create_wallet, require_unconfigured, wallet_address
    from troth.transport.interview import Interview, contract_or_none

    place = Home(home.expanduser())
    require_unconfigured(place, import_key)
    interview = Interview()
    factory = interview.factory(factory)
    if interview.asking:
        rpc = interview.text(rpc, "--rpc", "HTTP address of a chain node", default=DEFAULT_RPC)
        interview.say("A committee's relays keep the scheduler from seeing who asks; without, it sees your address.")
        question = "Committee contract, 0x…, or none"
        named = interview.text(committee, "--committee", question, default="none", check=contract_or_none)
        committee = "" if named == "none" else named
    mode = mode_of(direct) or "scheduler"
    table = MarketTable(factory, bank, start_block, seats=seats, outside=outside)
    configuration = ClientConfiguration(
        table, rpc or DEFAULT_RPC, scheduler, execution_class, committee, region=region, mode=mode, tickets=tickets
    ).checked()
    there = place.keystore.exists()
    address = wallet_address(place) if there else create_wallet(place, password_file, import_key).address
    save(place.configuration, configuration)
    tell(
        {"address": address, "keystore": str(place.keystore), "config": str(place.configuration)},
        as_json,
        f"wallet {address}\nFund it on chain, then `troth client open AMOUNT --broadcast`.",
    )


@app.command()
def models(
    rpc: RpcOption = "",
    committee: CommitteeOption = "",
    overlay: OverlayOption = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List models on offer with their prices, the cheapest first. `--execution-class NAME` asks one of them."""
    from troth.client.home import Home
    from troth.client.orders import terminal

    place = Home(home.expanduser())
    configuration = read_configuration(place, rpc, committee=committee, overlay=overlay)
    carried_out(terminal.print_models(place, configuration, as_json=as_json))


@app.command()
def receipts(
    order: Annotated[str, typer.Argument(help="Order id, or its beginning; none: all of them.")] = "",
    prove: Annotated[
        Path | None, typer.Option("--prove", help="Write the file that proves ORDER to anybody, to this path.")
    ] = None,
    rpc: RpcOption = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show what was asked and paid, and how each answer was checked."""
    from troth.client.home import Home
    from troth.client.orders import terminal

    place = Home(home.expanduser())
    carried_out(terminal.print_receipts(place, read_configuration(place, rpc), order, as_json=as_json, prove=prove))


@app.command("credit")
def credit_answers(
    *,
    model: ModelOption = "",
    minutes: Annotated[float, typer.Option(min=0, help="Answers of so many minutes count.")] = 60,
    least: Annotated[int, typer.Option(min=1, help="Answers that a node needs to be scored.")] = 4,
    rule: Annotated[
        str, typer.Option(help="normalised, or paper: 1 / perplexity as PlanetServe has it.")
    ] = "normalised",
    output: Annotated[
        Path | None, typer.Option(help="Write what `troth committee reputation propose --credits` reads.")
    ] = None,
    rpc: RpcOption = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Score what each node answered lately with your own copy of the model: what members of a committee rate by."""
    from troth.client.home import Home
    from troth.client.orders.crediting import CreditWish, print_credits
    from troth.protocol.credit import CreditRule

    if rule not in set(CreditRule):
        raise typer.BadParameter(f"Use one of {', '.join(CreditRule)}.", param_hint="--rule")
    place = Home(home.expanduser())
    configuration = read_configuration(place, rpc)
    wish = CreditWish(60 * minutes, least, CreditRule(rule))
    work = print_credits(place, configuration, model or configuration.market.model, wish, output, as_json=as_json)
    carried_out(work)
