"""`troth network`: create one on any chain, keep it by name, show it, verify it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from troth.transport.command_options import (
    BankOption,
    BroadcastOption,
    FactoryOption,
    JsonOption,
    KeystoreOption,
    PasswordOption,
    RpcOption,
    StartBlockOption,
    grouped,
    http_address,
    option_group,
)

if TYPE_CHECKING:
    from troth.chain.deployment import ServiceRules
    from troth.network.description import NetworkDescription
    from troth.protocol.imprints.calls import ImprintKey


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A network as one file: create it on a chain, keep it by name, show and verify it.",
)

LOCAL_RPC = "http://127.0.0.1:8545"
NetworkArgument = Annotated[
    str, typer.Argument(metavar="FILE|NAME", envvar="TROTH_NETWORK", help="A network file, or a name that is kept.")
]
NameOption = Annotated[str, typer.Option("--name", help="The network's name: 1 to 32 of a-z, 0-9 and -.")]
OutputOption = Annotated[Path, typer.Option("--output", help="The file to write.")]
CommitteeOption = Annotated[
    str, typer.Option("--committee", envvar="TROTH_COMMITTEE", help="The directory's committee that stands already.")
]
SuggestOption = Annotated[
    list[str] | None,
    typer.Option(
        "--suggest-rpc",
        help="A chain node that the file suggests to everybody, repeatable; default: --rpc, if it holds no secret.",
    ),
]
ChainNodeOption = Annotated[
    str,
    typer.Option(
        "--rpc", envvar="TROTH_RPC", help="HTTP address of a chain node; default: the file's.", callback=http_address
    ),
]

ParametersOption = Annotated[
    str, typer.Option("--parameters", help="main, demo, or a TOML file that changes fields of main's.")
]
PaceOption = Annotated[
    float, typer.Option("--block-seconds", min=0.05, max=3_600, help="Stretch windows made for 12 s to this pace.")
]


@option_group
class ServiceOptions:
    """What is deployed beside the market."""

    disputes: Annotated[
        bool,
        typer.Option(
            "--disputes/--no-disputes",
            help="Deploy what lets one honest party convict a wrong row by arithmetic: three contracts more.",
        ),
    ] = False
    imprints: Annotated[
        list[Path] | None,
        typer.Option(
            "--imprints",
            file_okay=False,
            help="Deploy Imprints, by which a wrong token convicts and no row is shown, with the key in this folder, "
            "as a ceremony leaves it. Repeat it for each width of rows. Not with --disputes.",
        ),
    ] = None
    ticket_price: Annotated[
        list[str] | None,
        typer.Option(help="Deploy Tickets with this price, 0.001ether or units of --asset; ascending. Repeat it."),
    ] = None
    ticket_epoch: Annotated[int, typer.Option(min=10, help="Blocks of an epoch of tickets.")] = 50_400
    member_bond: Annotated[str, typer.Option(help="Deploy Reputation, and each member bonds so much: 1ether.")] = ""
    rating_epoch: Annotated[int, typer.Option(min=8, max=8000, help="Blocks of an epoch of ratings.")] = 1800
    organisations: Annotated[bool, typer.Option("--organisations", help="Deploy Organisations over Reputation.")] = (
        False
    )

    def rules(self, asset: str) -> ServiceRules:
        """The same, read; prices of tickets are in the asset that this address names."""
        from troth.chain.deployment import ServiceRules
        from troth.protocol.amounts import COIN
        from troth.protocol.reputation import paper_rules
        from troth.protocol.tickets.messages import TicketRules

        return ServiceRules(
            tickets=TicketRules(self.ticket_epoch, _prices(self.ticket_price, asset)) if self.ticket_price else None,
            reputation=paper_rules(self.rating_epoch, COIN.parse(self.member_bond)) if self.member_bond else None,
            organisations=self.organisations,
        )


@app.command()
@grouped
def create(
    *,
    name: NameOption = "network",
    rpc: RpcOption = LOCAL_RPC,
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    parameters: ParametersOption = "main",
    block_seconds: PaceOption = 12.0,
    asset: Annotated[str, typer.Option("--asset", help="ERC-20 in which all is paid; default: the chain's coin.")] = "",
    factory: Annotated[str, typer.Option("--factory", help="A factory that stands already; default: a new one.")] = "",
    member: Annotated[
        list[str] | None,
        typer.Option(help="A first member of the committee, as `troth committee init` prints it. Repeat it."),
    ] = None,
    committee: CommitteeOption = "",
    services: ServiceOptions,
    suggest_rpc: SuggestOption = None,
    output: OutputOption = Path("network.json"),
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Deploy everything that a network needs, verify it, write network.json. A dry run without --broadcast.

    A run that was interrupted is carried on by the same command: nothing is deployed twice.
    """
    from troth.network import showing
    from troth.network.parameters import read_parameters
    from troth.network.planning import CreationWish, pace_words, plan_creation
    from troth.protocol.committee import read_member
    from troth.protocol.market.shipped import warning_of
    from troth.protocol.types import ZERO_ADDRESS

    chosen = read_parameters(parameters, asset, block_seconds)
    wish = CreationWish(
        name=name,
        parameters=chosen,
        output=output.expanduser(),
        factory=_optional(factory),
        members=tuple(read_member(text) for text in member or ()),
        committee=_optional(committee),
        suggested=_suggestions(rpc, suggest_rpc),
        disputes=services.disputes and chosen.prover == ZERO_ADDRESS,
        imprints=_keys(rpc, services.imprints or ()),
        services=services.rules(asset),
    ).checked()
    plan = asyncio.run(plan_creation(rpc, wish, _payer(keystore, broadcast)))
    pace = pace_words(wish.parameters, plan.chain.block_seconds, block_seconds)
    warnings = [text for text in (warning_of(wish.parameters), pace) if text]
    told = showing.told_of_plan(wish, plan, warnings)
    if not as_json:
        typer.echo(showing.plan_text(wish, plan, warnings, dry=not broadcast), err=broadcast)
    if broadcast:
        told |= _broadcast(rpc, wish, plan, keystore, password_file, as_json)
    if as_json:
        typer.echo(json.dumps(told))
    if not broadcast and told["problems"]:
        raise typer.Exit(1)


@app.command()
def describe(
    *,
    factory: FactoryOption,
    bank: BankOption = "",
    committee: CommitteeOption = "",
    tickets: Annotated[str, typer.Option("--tickets", help="Its Tickets.")] = "",
    reputation: Annotated[str, typer.Option("--reputation", help="Its Reputation.")] = "",
    organisations: Annotated[str, typer.Option("--organisations", help="Its Organisations.")] = "",
    start_block: StartBlockOption = 0,
    name: NameOption = "network",
    rpc: RpcOption = LOCAL_RPC,
    suggest_rpc: SuggestOption = None,
    output: OutputOption = Path("network.json"),
    as_json: JsonOption = False,
) -> None:
    """Write the file of a network that stands already."""
    from troth.network import creating
    from troth.network.description import write_description
    from troth.network.errors import CreationRefused
    from troth.protocol.types import to_address

    beside = {"tickets": tickets, "reputation": reputation, "organisations": organisations}
    place = output.expanduser()
    if place.exists():
        raise CreationRefused("There is a file already", place, "Choose another --output.")
    network = asyncio.run(
        creating.describe(
            rpc,
            name,
            to_address(factory),
            bank=_optional(bank),
            committee=_optional(committee),
            services={name: to_address(place) for name, place in beside.items() if place},
            start=start_block,
            suggested=_suggestions(rpc, suggest_rpc),
        )
    )
    write_description(place, network)
    _tell({"network": str(place), "name": name, "factory": network.factory}, f"wrote {place}", as_json)


@app.command()
def show(network: NetworkArgument, as_json: JsonOption = False) -> None:
    """What a network is: its chain, contracts and parameters in money and hours. Asks nobody."""
    from troth.network import networks, showing

    found = networks.find(network)
    _tell(showing.told_of_network(found), showing.network_text(found), as_json)


@app.command()
def verify(network: NetworkArgument, rpc: ChainNodeOption = "", as_json: JsonOption = False) -> None:
    """Compare the file with the chain. Exit code 0 it holds, 1 a check failed, 2 no usable file, 3 not completed."""
    from troth.network import networks, showing

    found = networks.find(network)
    verification = _verify(found, rpc)
    text = showing.verification_text(verification)
    if not rpc:
        text += (
            f"\nasked of {found.rpc[0]}, which the file suggests: of strangers' files ask a node of yours with --rpc"
        )
    _tell(showing.told_of_verification(verification), text, as_json)
    if verification.exit_code:
        raise typer.Exit(verification.exit_code)


@app.command()
def add(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A network file.")],
    name: Annotated[str, typer.Option("--name", help="Keep it under this name; default: the file's own.")] = "",
    rpc: ChainNodeOption = "",
    as_json: JsonOption = False,
) -> None:
    """Verify a file and keep it, so that --network NAME finds it."""
    from troth.network import networks, showing
    from troth.network.description import NAME, read_description

    found = read_description(file)
    if name and NAME.fullmatch(name) is None:
        raise typer.BadParameter("A name has 1 to 32 of a-z, 0-9 and -.", param_hint="--name")
    verification = _verify(found, rpc)
    if verification.exit_code == 1:
        _tell(showing.told_of_verification(verification), showing.verification_text(verification), as_json)
        raise typer.Exit(1)
    kept = networks.keep(found, name or found.name)
    _tell({"name": kept.stem, "network": str(kept)}, f"kept as {kept.stem}: use --network {kept.stem}", as_json)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """The networks that are kept, and where."""
    from troth.network import networks

    names, folder = networks.kept_names(), networks.networks_folder()
    text = "\n".join(names) or f"none are kept in {folder}: add one with `troth network add FILE`"
    _tell({"folder": str(folder), "networks": names}, text, as_json)


@app.command()
def probe(rpc: RpcOption = LOCAL_RPC, as_json: JsonOption = False) -> None:
    """What a chain has of what a network needs, and what will not work there. Exit code 1: no network can."""
    from troth.network import showing
    from troth.network.probing import probe_chain

    found = asyncio.run(probe_chain(rpc))
    _tell(showing.told_of_chain(found), showing.chain_text(found), as_json)
    if found.unfit:
        raise typer.Exit(1)


@app.command()
def account(
    file: Annotated[Path, typer.Argument(help="The keyfile to write; none is ever overwritten.")],
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an account that can pay: a keyfile for --keystore, whose address is printed."""
    from troth.chain.keystore import create_account, keystore_path, read_password

    place = keystore_path(str(file))
    made = create_account(place, read_password(password_file, confirm=True, purpose="a new account")).address
    text = f"account {made}\nwrote {place}: keep a copy of it, and its password. Send coins for gas to the address."
    _tell({"account": made, "keystore": str(place)}, text, as_json)


def _broadcast(  # noqa: PLR0917
    rpc: str, wish: Any, plan: Any, keystore: Path | None, password_file: Path | None, as_json: bool
) -> dict[str, Any]:
    from troth.chain.keystore import load_account, read_password
    from troth.network import showing
    from troth.network.creating import create as create_network

    assert keystore is not None  # _payer refused that
    key = load_account(keystore, read_password(password_file, purpose="the account that pays"))
    try:
        made = asyncio.run(create_network(rpc, wish, plan, key, lambda line: typer.echo(line, err=True)))
    except KeyboardInterrupt:
        typer.echo("interrupted: the same command carries on where this one stopped", err=True)
        raise
    if not as_json:
        typer.echo(showing.created_text(wish, made))
    return showing.told_of_creation(wish, made)


def _verify(network: NetworkDescription, rpc: str) -> Any:
    from troth.network import verifying
    from troth.network.errors import NetworkError

    if not rpc and not network.rpc:
        raise NetworkError("The file suggests no chain node", network.name, "Name one with --rpc.")
    return asyncio.run(verifying.verify(network, rpc or network.rpc[0]))


def _payer(keystore: Path | None, broadcast: bool) -> Any:
    """The account that pays, by its keyfile; a dry run does without."""
    from troth.chain.keystore import address_in
    from troth.network.errors import CreationRefused

    if keystore is not None:
        return address_in(keystore.expanduser())
    if broadcast:
        raise CreationRefused("No account pays", "no keyfile", "Name its keyfile with --keystore.")
    return None


def _suggestions(rpc: str, given: list[str] | None) -> tuple[str, ...]:
    """The chain nodes of the file: those that were named, or --rpc where everybody may know it."""
    from troth.network.description import suggested

    if given:
        return tuple(given)
    return (rpc,) if suggested(rpc) else ()


def _prices(texts: list[str], asset: str) -> Any:
    """Prices of tickets: amounts of the chain's coin, or whole smallest units of another asset."""
    from troth.network.errors import CreationRefused
    from troth.protocol.amounts import COIN

    try:
        return tuple(int(text) if asset else COIN.parse(text) for text in texts)
    except ValueError as error:
        remedy = "Write whole numbers of the token's smallest unit."
        raise CreationRefused("This is no price of a ticket", ", ".join(texts), remedy) from error


def _keys(rpc: str, folders: Sequence[Path]) -> tuple[ImprintKey, ...]:
    """The keys of these folders, as the chain takes them."""
    from troth.network.probing import probe_chain
    from troth.protocol.imprints.keys import read_key

    if not folders:
        return ()
    chain_id = asyncio.run(probe_chain(rpc)).chain_id
    return tuple(read_key(folder.expanduser(), chain_id).checking for folder in folders)


def _optional(text: str) -> Any:
    from troth.protocol.types import to_address

    return to_address(text) if text else None


def _tell(told: dict[str, Any], text: str, as_json: bool) -> None:
    sys.stdout.write((json.dumps(told) if as_json else text) + "\n")
