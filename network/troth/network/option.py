"""--network FILE|NAME on every command that takes --rpc.

The root command adds the option, so no command has to know of it. It fills in what the command line and the
environment leave open: factory and the transaction that created it, Bank, start block, committee, what stands beside
the market (Tickets, Reputation, Organisations), and the chain node that the file suggests. An option that names another
deployment is refused, and so is a chain node of another chain, before the command does anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from troth.network.description import NetworkDescription

KEY = "troth.network"
"""Where the context of a command keeps its network."""
OWN = "network"
"""The command group that has networks as arguments."""
HELP = "A network file, or a name that `troth network list` shows: contracts, start block and chain node."
FROM_A_FILE = {"factory", "bank", "committee", "tickets", "reputation", "organisations", "rpc"}
"""Options that a network's file fills in."""
FIXED = ("factory", "bank", "committee", "tickets", "reputation", "organisations")
"""Options that must not name anything else than the network does."""


def offer_network(group: str, command: Any) -> None:
    """Add --network to every command of a group that takes --rpc; the group's name is that of `troth GROUP`."""
    for below in getattr(command, "commands", {}).values():
        offer_network(group, below)
    names = {parameter.name for parameter in getattr(command, "params", ())}
    if group == OWN or "rpc" not in names or "network" in names or command.callback is None:
        return
    filled = names - ({"committee"} if group == "node" else set())  # being an entry is its operator's choice
    command.params.append(_option(filled))
    carry_out = command.invoke

    def invoke(context: Any) -> Any:
        if KEY in context.meta:
            require_network(context.meta[KEY], context.params)
        return carry_out(context)

    command.invoke = invoke
    parse = command.parse_args

    def parse_args(context: Any, arguments: list[str]) -> Any:
        try:
            return parse(context, arguments)
        except typer.BadParameter as error:
            # Click says nothing of its own about what is missing: then the network is what most people want to name.
            if not error.message and error.param is not None and error.param.name in FROM_A_FILE & filled:
                named = context.meta.get(KEY)
                lacking = "" if named is None else f"The network {named.name} names none."
                error.message = lacking or "--network FILE|NAME names it, too."
            raise

    command.parse_args = parse_args


def _option(filled: set[str]) -> Any:
    """The option as Typer makes it for a command that has it in its signature."""
    maker = typer.Typer(add_completion=False)

    def callback(context: typer.Context, value: str | None) -> str | None:
        _choose(context, value, filled)
        return value

    # The option as a default: an annotation is text here, and could not name the callback.
    chosen = typer.Option(
        None,
        "--network",
        envvar="TROTH_NETWORK",
        metavar="FILE|NAME",
        is_eager=True,
        expose_value=False,
        help=HELP,
        callback=callback,
        show_default=False,
    )

    @maker.command()
    def made(network: str | None = chosen) -> None:
        del network

    return next(option for option in typer.main.get_command(maker).params if option.name == "network")


def _choose(context: Any, value: str | None, filled: set[str]) -> None:
    """Let the file's values stand where nothing else is given."""
    if value and not context.resilient_parsing:
        from troth.network.networks import find

        network = find(value)
        context.meta[KEY] = network
        given = {name: text for name, text in _values(network).items() if name in filled}
        context.default_map = {**(context.default_map or {}), **given}


def _values(network: NetworkDescription) -> dict[str, Any]:
    found: dict[str, Any] = {
        "factory": network.factory,
        "bank": network.contracts.bank,
        "start_block": network.start_block,
    }
    if network.committee is not None:
        found["committee"] = network.committee.address
    if network.created_by is not None:
        found["created_by"] = "0x" + network.created_by.hex()
    found |= {name: place.address for name, place in network.services.items()}
    if network.rpc:
        found["rpc"] = network.rpc[0]
    return found


def require_network(network: NetworkDescription, options: Mapping[str, Any]) -> None:
    """WrongNetwork where an option names another deployment, or the chain node is not of this network.

    A chain node that does not answer is ChainUnavailable. A bundle is read without any.
    """
    from troth.network.errors import WrongNetwork

    values = _values(network)
    for name in FIXED:
        given, expected = str(options.get(name) or ""), values.get(name)
        if given and expected is not None and given.lower() != expected.lower():
            remedy = f"Leave out --{name}, its variable TROTH_{name.upper()}, or --network."
            raise WrongNetwork(f"--{name} names another one than the network {network.name} has", given, remedy)
    if options.get("rpc") and not options.get("bundle"):
        import asyncio

        asyncio.run(require_chain(network, str(options["rpc"])))


async def require_chain(network: NetworkDescription, url: str) -> None:
    """WrongNetwork unless the node is on the network's chain and its factory stands there."""
    from troth.chain import decoding
    from troth.chain.rpc import Rpc
    from troth.network.errors import WrongNetwork

    rpc = Rpc(url)
    try:
        found = decoding.quantity(await rpc.request("eth_chainId"))
        if found != network.chain_id:
            what = f"The chain node is on chain {found}, and the network {network.name} on chain {network.chain_id}"
            raise WrongNetwork(what, rpc.place, f"Name a node of chain {network.chain_id} with --rpc.")
        if not decoding.data(await rpc.request("eth_getCode", network.factory, "latest")):
            what = f"The network {network.name} is not on this chain: no code is at its factory"
            remedy = "If the chain was started anew, its networks are gone: create another. Else let it catch up."
            raise WrongNetwork(what, network.factory, remedy)
    finally:
        await rpc.close()
