"""`troth market`: deploy the market's contracts, and show what a deployment is before money goes there."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from troth.node.home import show
from troth.transport.command_options import (
    BankOption,
    BroadcastOption,
    FactoryOption,
    JsonOption,
    KeystoreOption,
    PasswordOption,
    RpcOption,
)

app = typer.Typer(no_args_is_help=True, help="The market's contracts: deploy, show.")

LOCAL_RPC = "http://127.0.0.1:8545"


@app.command()
def deploy(
    *,
    parameters: Annotated[
        str, typer.Option("--parameters", help="main, demo, or a TOML file that changes fields of main's.")
    ] = "main",
    asset: Annotated[str, typer.Option("--asset", help="ERC-20 in which all is paid; default: the chain's coin.")] = "",
    factory: Annotated[str, typer.Option("--factory", help="A factory that stands already; default: a new one.")] = "",
    rpc: RpcOption = LOCAL_RPC,
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Deploy all contracts from the packaged bytecode (dry run by default: parameters and what they mean)."""
    from troth.node.keyfiles import open_keystore
    from troth.protocol.market.shipped import broken_windows, warning_of
    from troth.protocol.types import to_address

    chosen = read_parameters(parameters)
    if asset:
        chosen = replace(chosen, asset=to_address(asset))
    told: dict[str, Any] = {"parameters": plain(asdict(chosen))}
    if rules := broken_windows(chosen):
        told["broken"] = list(rules)
    if warning := warning_of(chosen):
        told["warning"] = warning
    key = open_keystore(keystore, password_file, "the account that pays", "--keystore")
    if not broadcast:
        show({**told, "sent": False, "remedy": "Repeat with --broadcast to deploy."}, as_json)
        return
    from troth.chain.deployment import deploy_market

    async def run() -> dict[str, Any]:
        existing = to_address(factory) if factory else None
        market, receipts = await deploy_market(rpc, chosen, key, factory=existing)
        async with market:
            contracts = asdict(market.contracts)
        gas = sum(receipt.gas_used for receipt in receipts)
        return {"factory": market.place.factory, **contracts, "gas": gas, "sent": True}

    show({**told, **asyncio.run(run())}, as_json)


@app.command("show")
def show_(
    *,
    factory: FactoryOption,
    bank: BankOption = "",
    rpc: RpcOption = LOCAL_RPC,
    as_json: JsonOption = False,
) -> None:
    """Parameters and contracts of a deployment, and whether they are the packaged ones; exit code 1 if not."""
    from troth.chain.market import find_deployed
    from troth.protocol.market.addresses import contracts_of
    from troth.protocol.market.shipped import warning_of
    from troth.protocol.types import to_address

    place = to_address(factory)
    found = asyncio.run(find_deployed(rpc, place, to_address(bank) if bank else None))
    packaged = contracts_of(place, found.parameters) == found.contracts
    told: dict[str, Any] = {
        "factory": place,
        **asdict(found.contracts),
        "block": found.meta.block,
        "parameters": plain(asdict(found.parameters)),
        "packaged": "these are the contracts of this release" if packaged else "NOT the contracts of this release",
    }
    if warning := warning_of(found.parameters):
        told["warning"] = warning
    show(told, as_json)
    if not packaged:
        raise typer.Exit(1)


def read_parameters(name: str) -> Any:
    """The shipped set of this name, or main's with the fields of a TOML file; ConfigError where a field is wrong."""
    import tomllib

    from troth.node.errors import ConfigError
    from troth.protocol.market import shipped

    known = {"main": shipped.MAIN, "demo": shipped.DEMO}
    if name in known:
        return known[name]
    try:
        fields = tomllib.loads(Path(name).read_text("utf-8"))
        changed = replace(shipped.MAIN, **fields)
    except (OSError, tomllib.TOMLDecodeError, TypeError) as error:
        remedy = "Name main, demo, or a TOML file with fields of them, as `troth market deploy` prints them."
        raise ConfigError("these parameters cannot be read", f"{name}: {error}", remedy) from error
    if wrong := [key for key, value in fields.items() if type(value) is not type(getattr(shipped.MAIN, key))]:
        raise ConfigError("parameters of another type", wrong, "Windows and money are whole numbers, addresses text.")
    return changed


def plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Money as text: JSON numbers lose digits beyond 2^53."""
    return {name: str(value) if name in {"scheduler_stake", "gas_price"} else value for name, value in fields.items()}
