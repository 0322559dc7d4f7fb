"""`troth org …`: an organisation's credits, and its own model on others' machines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from troth.transport.command_options import (
    BankOption,
    BroadcastOption,
    FactoryOption,
    JsonOption,
    PasswordOption,
    RpcOption,
    StartBlockOption,
    grouped,
    option_group,
    show,
)

if TYPE_CHECKING:
    from troth.node.organisations.deployments import OrganisationsAt, OwnerSender
    from troth.protocol.calls import Call

app = typer.Typer(
    help="What your nodes earned by serving, spent on machines for a model of your own (docs/how-to/organisations.md).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

ContractOption = Annotated[
    str, typer.Option("--organisations", envvar="TROTH_ORGANISATIONS", help="The Organisations contract, 0x….")
]
OwnerOption = Annotated[
    Path, typer.Option("--keystore", envvar="TROTH_KEYSTORE", help="Keyfile of the owner, who sends and pays.")
]
NumberArgument = Annotated[int, typer.Argument(min=1, help="The deployment's number, as `troth org status` has it.")]
NodeArgument = Annotated[str, typer.Argument(help="Operator of a node, 0x….")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask before credits are set aside.")]


@option_group
class MarketOptions:
    """The market whose organisations are meant."""

    rpc: RpcOption = "http://127.0.0.1:8545"
    factory: FactoryOption = ""
    bank: BankOption = ""
    organisations: ContractOption = ""
    start_block: StartBlockOption = 0

    def place(self) -> OrganisationsAt:
        """The same, read."""
        from troth.node.organisations.deployments import OrganisationsAt

        return OrganisationsAt(self.rpc, self.factory, self.bank, self.organisations, self.start_block)


@option_group
class SigningOptions:
    """Who signs what for an organisation."""

    rpc: RpcOption = "http://127.0.0.1:8545"
    keystore: OwnerOption
    organisations: ContractOption = ""
    password_file: PasswordOption = None
    broadcast: BroadcastOption = False
    as_json: JsonOption = False

    def place(self) -> OrganisationsAt:
        """The contract to which it is sent."""
        from troth.node.organisations.deployments import OrganisationsAt

        return OrganisationsAt(self.rpc, "", "", self.organisations, 0)

    def sender(self) -> OwnerSender:
        """Who sends it, or would."""
        from troth.node.organisations.deployments import OwnerSender

        return OwnerSender(self.keystore.expanduser(), self.password_file, self.broadcast)

    def send(self, call: Call, about: Mapping[str, Any]) -> None:
        """Send a call, or show what it would do."""
        from troth.node.organisations.deployments import change

        show(asyncio.run(change(self.place(), call, self.sender(), about)), self.as_json)


@app.command()
def create(
    reputation: Annotated[str, typer.Argument(help="The market's Reputation contract, 0x….")],
    *,
    rpc: RpcOption = "http://127.0.0.1:8545",
    keystore: OwnerOption,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Create the contract of a market's organisations, once (dry run by default)."""
    from troth.node.organisations.deployments import OwnerSender
    from troth.node.organisations.deployments import create as make

    show(asyncio.run(make(rpc, reputation, OwnerSender(keystore.expanduser(), password_file, broadcast))), as_json)


@app.command("credits")
@grouped
def show_credits(
    *,
    market: MarketOptions,
    owner: Annotated[str, typer.Option("--owner", envvar="TROTH_OWNER", help="Only this owner, 0x….")] = "",
    as_json: JsonOption = False,
) -> None:
    """What organisations have, and what each node earned last, or why it earned nothing."""
    from troth.node.organisations.deployments import credits_of
    from troth.protocol.types import to_address

    place = market.place()
    show(asyncio.run(credits_of(place, to_address(owner) if owner else None)), as_json)


@app.command()
@grouped
def status(
    number: Annotated[int, typer.Argument(min=0, help="One deployment; all without it.")] = 0,
    *,
    market: MarketOptions,
    as_json: JsonOption = False,
) -> None:
    """Deployments: who hosts them, how long, and what is left."""
    from troth.node.organisations.deployments import status as look

    place = market.place()
    show(asyncio.run(look(place, number)), as_json)


@app.command()
@grouped
def deploy(
    model: Annotated[str, typer.Argument(help="Your model's registered class: its id 0x… or its name.")],
    *,
    replicas: Annotated[int, typer.Option("--replicas", min=1, max=65535, help="Machines that host all layers.")],
    days: Annotated[float, typer.Option("--days", min=0.0, help="For how long; rounded up to whole epochs.")],
    market: MarketOptions,
    keystore: OwnerOption,
    source: Annotated[
        str, typer.Option("--source", help="Where nodes find the files; its last part names their folder.")
    ] = "",
    node: Annotated[str, typer.Option("--node", help="Your trusted node that stands for it; default: the best.")] = "",
    password_file: PasswordOption = None,
    yes: YesOption = False,
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Have your own model hosted on others' machines (dry run by default). Credits are set aside at once."""
    from troth.node.organisations.deployments import DeployWish, OwnerSender
    from troth.node.organisations.deployments import deploy as order
    from troth.transport.interview import at_terminal

    place = market.place()
    wish, path = DeployWish(model, replicas, days, source, node), keystore.expanduser()
    if broadcast and not yes and at_terminal():
        show(asyncio.run(order(place, wish, OwnerSender(path, password_file, broadcast=False))), as_json=False)
        typer.confirm("Set these credits aside?", abort=True, err=True)
    show(asyncio.run(order(place, wish, OwnerSender(path, password_file, broadcast))), as_json)


@app.command()
@grouped
def stop(
    number: NumberArgument,
    *,
    signing: SigningOptions,
) -> None:
    """End a deployment with this epoch (dry run by default); `withdraw` brings the rest back two epochs later."""
    from troth.protocol import organisation_calls as calls

    signing.send(calls.stop(number), {"deployment": number})


@app.command()
@grouped
def withdraw(
    number: NumberArgument,
    *,
    signing: SigningOptions,
) -> None:
    """Bring back what a deployment that is over did not spend (dry run by default)."""
    from troth.protocol import organisation_calls as calls

    signing.send(calls.reclaim(number), {"deployment": number})


@app.command()
@grouped
def dismiss(
    node: NodeArgument,
    *,
    signing: SigningOptions,
) -> None:
    """Send away a node that does not answer your requests: this epoch is not paid (dry run by default)."""
    from troth.protocol import organisation_calls as calls
    from troth.protocol.types import to_address

    signing.send(calls.dismiss(to_address(node)), {"node": node})


@app.command("host")
@grouped
def host_layers(
    number: NumberArgument,
    node: NodeArgument,
    layers: Annotated[str, typer.Argument(help="FIRST:END, a segment whose group the node is in.")],
    *,
    signing: SigningOptions,
) -> None:
    """Have your node host a deployment from the next epoch on (dry run by default), as `start --auto` does it."""
    from troth.node.configuration import segment_of
    from troth.node.organisations.deployments import host
    from troth.protocol.types import to_address

    work = host(signing.place(), number, to_address(node), segment_of(layers), signing.sender())
    show(asyncio.run(work), signing.as_json)


@app.command()
@grouped
def leave(
    node: NodeArgument,
    *,
    signing: SigningOptions,
) -> None:
    """Have your node host its deployment no longer: this epoch is not paid (dry run by default)."""
    from troth.protocol import organisation_calls as calls
    from troth.protocol.types import to_address

    signing.send(calls.leave(to_address(node)), {"node": node})


@app.command("post")
@grouped
def post_epoch(
    *,
    market: MarketOptions,
    keystore: OwnerOption,
    password_file: PasswordOption = None,
    broadcast: BroadcastOption = False,
    as_json: JsonOption = False,
) -> None:
    """Credit the last epoch of all your nodes (dry run by default). Nodes with [organisations] do it by themselves."""
    from troth.node.organisations.deployments import OwnerSender, post

    place = market.place()
    show(asyncio.run(post(place, OwnerSender(keystore.expanduser(), password_file, broadcast))), as_json)
