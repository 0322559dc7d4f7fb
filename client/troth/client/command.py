"""`troth client`: a wallet, and questions paid from it."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from troth.client.chat_command import chat
from troth.client.gateway_command import serve
from troth.client.options import (
    DEFAULT_HOME,
    BroadcastOption,
    ClassOption,
    CommitteeOption,
    ContractOption,
    DirectOption,
    FactoryOption,
    HomeOption,
    JsonOption,
    OverlayOption,
    PasswordOption,
    RpcOption,
    SchedulerOption,
    mode_of,
    read_configuration,
)
from troth.client.orders.case_command import case
from troth.client.tabs.command import finish, list_tabs, open_tab, summon, take_back, top_up, trust

Result = TypeVar("Result")

app = typer.Typer(no_args_is_help=True, help="Ask a model and pay from a wallet; every answer is verified.")
app.command()(serve)
app.command("ask", help="Ask one question: `chat` with one.")(chat)
app.command()(chat)
app.command("open")(open_tab)
app.command("top-up")(top_up)
app.command("tabs")(list_tabs)
app.command()(finish)
app.command()(trust)
app.command()(summon)
app.command()(case)


@app.command()
def init(  # noqa: PLR0917
    contract: ContractOption = "",
    rpc: RpcOption = "http://127.0.0.1:8545",
    scheduler: SchedulerOption = "",
    execution_class: ClassOption = "",
    start_block: Annotated[
        int,
        typer.Option(
            "--start-block", envvar="TROTH_START_BLOCK", min=0, help="A block before the contract's first event."
        ),
    ] = 0,
    committee: CommitteeOption = "",
    direct: DirectOption = None,
    region: Annotated[
        str, typer.Option("--region", envvar="TROTH_REGION", help="Prefer relays of this region, if there are enough.")
    ] = "",
    factory: FactoryOption = "",
    bank: Annotated[
        str, typer.Option("--bank", envvar="TROTH_BANK", help="Its Bank, where the factory made several deployments.")
    ] = "",
    import_key: Annotated[
        Path | None, typer.Option("--import-key", help="Keyfile to copy, opened with the same password.")
    ] = None,
    password_file: PasswordOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Create the wallet and client.toml."""
    from troth.client.configuration import Configuration, save
    from troth.client.home import Home
    from troth.client.market_table import MarketTable
    from troth.client.wallet import create_wallet

    place = Home(home.expanduser())
    mode = mode_of(direct) or "scheduler"
    table = MarketTable(factory, bank, start_block) if factory else None
    block = 0 if factory else start_block
    configuration = Configuration(
        contract, rpc, scheduler, execution_class, block, committee, region=region, mode=mode, market=table
    ).checked()
    key = create_wallet(place, password_file, import_key)
    save(place.configuration, configuration)
    _print(
        {"address": key.address, "keystore": str(place.keystore), "config": str(place.configuration)},
        as_json,
        f"wallet {key.address}\nFund it on chain, then `troth client {'open' if factory else 'deposit'} AMOUNT "
        "--broadcast`.",
    )


@app.command()
def deposit(  # noqa: PLR0917
    amount: Annotated[str, typer.Argument(help="For example 0.05ether, 20gwei or 1000wei; without a unit: ether.")],
    broadcast: BroadcastOption = False,
    password_file: PasswordOption = None,
    rpc: RpcOption = "",
    contract: ContractOption = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Move ether from the wallet into its escrow balance, from which requests are paid."""
    from troth.client.money import parse_amount
    from troth.protocol import calls

    wei = parse_amount(amount)
    _transact(home, rpc, contract, password_file, lambda address: calls.deposit(address, wei), broadcast, as_json)


@app.command()
def withdraw(  # noqa: PLR0917
    amount: Annotated[str, typer.Argument(help="For example 0.05ether; only what no running request holds.")],
    broadcast: BroadcastOption = False,
    password_file: PasswordOption = None,
    rpc: RpcOption = "",
    contract: ContractOption = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Move ether from the escrow balance back to the wallet."""
    from troth.client.money import parse_amount
    from troth.protocol import calls

    wei = parse_amount(amount)
    _transact(home, rpc, contract, password_file, lambda address: calls.withdraw_escrow(wei), broadcast, as_json)


@app.command()
def balance(
    rpc: RpcOption = "", contract: ContractOption = "", home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False
) -> None:
    """Show the escrow balance, and what the wallet holds besides."""
    from troth.client.chain_view import view
    from troth.client.home import Home
    from troth.client.money import format_amount
    from troth.client.wallet import wallet_address

    place = Home(home.expanduser())
    address = wallet_address(place)

    async def read() -> tuple[int, int]:
        async with view(place, read_configuration(place, rpc, contract)) as (chain, follower):
            return follower.state.escrow_of(address), await chain.balance(address)

    escrow, outside = _run(read())
    _print(
        {"address": address, "escrow_wei": str(escrow), "wallet_wei": str(outside)},
        as_json,
        f"{address}\nescrow  {format_amount(escrow)}\nwallet  {format_amount(outside)}",
    )


@app.command()
def estimate(  # noqa: PLR0917
    scheduler: SchedulerOption = "",
    execution_class: ClassOption = "",
    rpc: RpcOption = "",
    contract: ContractOption = "",
    committee: CommitteeOption = "",
    overlay: OverlayOption = "",
    direct: DirectOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show what one request costs, and how many the balance covers."""
    from troth.client.home import Home
    from troth.client.money import format_amount
    from troth.client.session import session
    from troth.client.wallet import wallet_address

    place = Home(home.expanduser())
    address = wallet_address(place)

    async def read() -> tuple[int, int]:
        async with session(
            place,
            read_configuration(
                *(place, rpc, contract, scheduler, execution_class),
                committee=committee,
                overlay=overlay,
                direct=direct,
            ),
        ) as ready:
            return ready.offer.fee, ready.follower.state.escrow_of(address)

    fee, escrow = _run(read())
    _print(
        {"fee_wei": str(fee), "escrow_wei": str(escrow), "requests_covered": escrow // fee if fee else None},
        as_json,
        f"{format_amount(fee)} a request, refunded in full if the answer is rejected\n"
        f"the balance of {format_amount(escrow)} covers {escrow // fee if fee else 'any number of'} requests",
    )


@app.command()
def receipts(  # noqa: PLR0917
    task: Annotated[str, typer.Argument(help="Task id, or its beginning; none: all of them.")] = "",
    answer: Annotated[
        bool, typer.Option("--answer", envvar="TROTH_ANSWER", help="Print TASK's answer, checked against the chain.")
    ] = False,
    prove: Annotated[
        Path | None, typer.Option("--prove", help="On tabs: write the file that proves TASK to anybody, to this path.")
    ] = None,
    rpc: RpcOption = "",
    contract: ContractOption = "",
    committee: CommitteeOption = "",
    overlay: OverlayOption = "",
    direct: DirectOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show what was asked and paid, with outcomes as the chain has them now."""
    from troth.client.history import print_receipts
    from troth.client.home import Home

    if answer and not task:
        raise typer.BadParameter("name the task whose answer you want", param_hint="--answer")
    place = Home(home.expanduser())
    configuration = read_configuration(place, rpc, contract, committee=committee, overlay=overlay, direct=direct)
    if configuration.market is not None:
        from troth.client.orders import terminal

        _run(terminal.print_receipts(place, configuration, task, as_json=as_json, prove=prove))
        return
    _run(print_receipts(place, configuration, task, as_json, answer))


@app.command()
def close(  # noqa: PLR0917
    task: Annotated[str, typer.Argument(help="Task id, or its beginning; on tabs: the tab, none for all.")] = "",
    broadcast: BroadcastOption = False,
    password_file: PasswordOption = None,
    rpc: RpcOption = "",
    contract: ContractOption = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """On tabs: as `finish`. Else close a task whose scheduler missed its deadline: the fee comes back."""
    from troth.client.closing import close_task
    from troth.client.home import Home
    from troth.client.task_transactions import describe_transaction
    from troth.client.wallet import open_wallet, wallet_address

    place = Home(home.expanduser())
    configuration = read_configuration(place, rpc, contract)
    if configuration.market is not None:
        take_back(place, configuration, task, broadcast, password_file, as_json)
        return
    key = open_wallet(place, password_file) if broadcast else None
    done = _run(close_task(place, configuration, task, key, wallet_address(place), broadcast=broadcast))
    _print(done, as_json, describe_transaction(done))


@app.command()
def dispute(  # noqa: PLR0917
    task: Annotated[str, typer.Argument(help="Task id, or its beginning.")],
    segment: Annotated[
        int, typer.Option("--segment", help="Segment to verify again; -1 for the only one that can be.")
    ] = -1,
    broadcast: BroadcastOption = False,
    password_file: PasswordOption = None,
    rpc: RpcOption = "",
    contract: ContractOption = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Have an answer verified again by more nodes; the bond comes back, with the fee, if it turns out to be wrong."""
    from troth.client.disputing import dispute_task
    from troth.client.home import Home
    from troth.client.money import format_amount
    from troth.client.task_transactions import describe_transaction
    from troth.client.wallet import open_wallet, wallet_address

    place = Home(home.expanduser())
    key = open_wallet(place, password_file) if broadcast else None
    configuration = read_configuration(place, rpc, contract)
    chosen = None if segment < 0 else segment
    done = _run(dispute_task(place, configuration, task, chosen, key, wallet_address(place), broadcast=broadcast))
    bond, worst = (format_amount(int(done[name])) for name in ("bond_wei", "lost_at_most_wei"))
    told = f"segment {done['segment']}, {done['outcome']}: bond {bond}, at most {worst} lost if the outcome stands"
    _print(done, as_json, f"{told}\n{describe_transaction(done)}")


def _transact(  # noqa: PLR0917
    home: Path, rpc: str, contract: str, password_file: Path | None, build: Any, broadcast: bool, as_json: bool
) -> None:
    from troth.chain.adapter import Chain
    from troth.client.chain_view import require_contract
    from troth.client.home import Home
    from troth.client.task_transactions import describe_transaction, transact
    from troth.client.wallet import open_wallet, wallet_address
    from troth.protocol.types import to_address

    place = Home(home.expanduser())
    configuration = read_configuration(place, rpc, contract)
    require_contract(configuration)
    address = wallet_address(place)
    key = open_wallet(place, password_file) if broadcast else None

    async def send() -> dict[str, Any]:
        async with await Chain.connect(configuration.rpc, to_address(configuration.contract)) as chain:
            return await transact(chain, build(address), key, address, broadcast=broadcast)

    done = _run(send())
    _print(done, as_json, describe_transaction(done))


def _print(result: dict[str, Any], as_json: bool, text: str) -> None:
    typer.echo(json.dumps(result) if as_json else text)


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    # Not loaded for help: forty modules.
    import asyncio

    return asyncio.run(work)
