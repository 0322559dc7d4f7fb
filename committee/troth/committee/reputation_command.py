"""`troth committee reputation …`: what members and everybody else do with the Reputation contract."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from troth.transport.command_options import (
    BankOption,
    BroadcastOption,
    FactoryOption,
    JsonOption,
    PasswordOption,
    RpcOption,
    StartBlockOption,
    folder_path,
    grouped,
    option_group,
    show,
)

if TYPE_CHECKING:
    from troth.committee.rating.contract import ContractPlace, TransactionPayer

app = typer.Typer(
    help="Scores of nodes that the committee's members agree on (docs/reference/reputation.md).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

ContractOption = Annotated[
    str, typer.Option("--reputation", envvar="TROTH_REPUTATION", help="The Reputation contract, 0x….")
]
MemberHomeOption = Annotated[
    Path,
    typer.Option(
        "--home",
        file_okay=False,
        callback=folder_path,
        envvar="TROTH_HOME",
        help="Folder of this member's configuration, keys and state.",
    ),
]
PayingOption = Annotated[
    Path, typer.Option("--keystore", envvar="TROTH_KEYSTORE", help="Keyfile of who sends and pays.")
]
OperatorArgument = Annotated[str, typer.Argument(help="The member's operator, 0x….")]
FileArgument = Annotated[Path, typer.Argument(help="The file of the epoch, which goes from member to member.")]
DEFAULT_HOME = Path("~/.troth/committee")


@option_group
class ScoresOptions:
    """The Reputation contract that is meant."""

    rpc: RpcOption
    reputation: ContractOption

    def place(self) -> ContractPlace:
        """The same, read."""
        from troth.committee.rating.contract import ContractPlace

        return ContractPlace.read(self.rpc, self.reputation, self.first_block())

    def first_block(self) -> int:
        """From which on its events are read."""
        return 0


@option_group
class EventsOptions(ScoresOptions):
    """The Reputation contract whose events are read."""

    start_block: StartBlockOption = 0

    def first_block(self) -> int:
        """From which on its events are read."""
        return self.start_block


@option_group
class PayingOptions:
    """Who sends and pays."""

    keystore: PayingOption
    password_file: PasswordOption = None
    broadcast: BroadcastOption = False

    def payer(self) -> TransactionPayer:
        """The same, read."""
        from troth.committee.rating.contract import TransactionPayer

        return TransactionPayer(self.keystore.expanduser(), self.password_file, self.broadcast)


@app.command("show")
@grouped
def show_standings(*, scores: EventsOptions, as_json: JsonOption = False) -> None:
    """Members, and every node's score; all scores are computed again from the contract's events."""
    from troth.committee.rating.contract import standings

    show(asyncio.run(standings(scores.place())), as_json)


@app.command()
@grouped
def deploy(
    *,
    rpc: RpcOption,
    committee: Annotated[str, typer.Option(envvar="TROTH_COMMITTEE", help="The Committee whose members rate, 0x….")],
    factory: FactoryOption,
    paying: PayingOptions,
    bank: BankOption = "",
    start_block: StartBlockOption = 0,
    epoch_blocks: Annotated[int, typer.Option(min=8, max=8000, help="Blocks of an epoch.")] = 1800,
    bond: Annotated[str, typer.Option(help="What each member stands to lose, such as 1ether.")] = "1ether",
    as_json: JsonOption = False,
) -> None:
    """Deploy a Reputation for a market's nodes, with the paper's numbers (dry run by default)."""
    from troth.committee.configuration import Bonding
    from troth.committee.rating.contract import deploy as deploy_contract
    from troth.committee.rating.contract import rules_from

    market = Bonding(factory, bank, start_block)
    show(asyncio.run(deploy_contract(rpc, committee, market, rules_from(epoch_blocks, bond), paying.payer())), as_json)


@app.command()
@grouped
def enroll(
    *,
    scores: ScoresOptions,
    paying: PayingOptions,
    home: MemberHomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Bond this member from its owner's account, which --keystore names (dry run by default).

    It counts from the next epoch on.
    """
    from troth.committee.rating.contract import enroll as enroll_member

    show(asyncio.run(enroll_member(_folder(home), scores.place(), paying.payer())), as_json)


@app.command()
@grouped
def leave(
    operator: OperatorArgument,
    *,
    scores: ScoresOptions,
    paying: PayingOptions,
    as_json: JsonOption = False,
) -> None:
    """Take a member out after this epoch (dry run by default).

    It may do so, its owner, and anybody once it has left the Committee.
    """
    from troth.committee.rating.contract import leave as take_out

    show(asyncio.run(take_out(operator, scores.place(), paying.payer())), as_json)


@app.command()
@grouped
def withdraw(
    operator: OperatorArgument,
    *,
    scores: ScoresOptions,
    paying: PayingOptions,
    as_json: JsonOption = False,
) -> None:
    """Send the bond of a member that left to its owner (dry run by default)."""
    from troth.committee.rating.contract import withdraw as take_bond

    show(asyncio.run(take_bond(operator, scores.place(), paying.payer())), as_json)


@app.command("list")
def make_list(
    file: Annotated[Path, typer.Argument(help="Where to write the list; what opens the prompts goes beside it.")],
    *,
    node: Annotated[list[str], typer.Option(help="Operator of a node that is examined, 0x…. Repeat it.")],
    prompts: Annotated[Path | None, typer.Option(help="File with one prompt a line, each asked once.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the list that an epoch fixes for the next one: nodes, and a root that hides the prompts."""
    from troth.committee.rating.contract import make_list as make

    show(make(node, prompts, file.expanduser()), as_json)


@app.command("corpus")
def prepare_corpus(
    source: Annotated[
        list[Path], typer.Argument(help="Files or folders: one prompt a line (.txt), or prompts and chats as JSON.")
    ],
    *,
    output: Annotated[Path, typer.Option(help="Where to write the corpus; there must be no file yet.")],
    nodes: Annotated[int, typer.Option(min=1, help="Nodes that the committee rates.")] = 50,
    members: Annotated[int, typer.Option(min=1, help="Members of the committee.")] = 7,
    prompts: Annotated[int, typer.Option(min=1, help="prompts of [reputation].")] = 4,
    attempts: Annotated[int, typer.Option(min=0, help="attempts of [reputation].")] = 6,
    as_json: JsonOption = False,
) -> None:
    """Make a corpus of prompts that people typed, so that no node can look your challenges up.

    Prints what was left out and why, languages, and how many epochs it lasts. Nothing is sent.
    """
    from troth.committee.corpus.own import AskingPlan, make_corpus
    from troth.committee.corpus.sources import prompts_in

    texts = prompts_in([path.expanduser() for path in source])
    show(make_corpus(texts, output.expanduser(), AskingPlan(nodes, members, prompts, attempts)), as_json)


@app.command()
@grouped
def lead(
    *,
    scores: EventsOptions,
    home: MemberHomeOption = DEFAULT_HOME,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Who leads this epoch; the member that led the last one prints its VRF proof for `propose --proof`."""
    from troth.committee.rating.contract import lead as leading

    show(asyncio.run(leading(_folder(home), scores.place(), password_file)), as_json)


@app.command()
@grouped
def propose(
    file: FileArgument,
    *,
    scores: EventsOptions,
    examined: Annotated[Path | None, typer.Option("--list", help="The list that the epoch before fixed.")] = None,
    credits: Annotated[
        Path | None, typer.Option(help='JSON: {"0xNODE": 0.947, …}; who is missing is not scored.')
    ] = None,
    after: Annotated[Path | None, typer.Option("--next", help="The list for the next epoch.")] = None,
    proof: Annotated[str, typer.Option(help="What `lead` printed at the last leader; without it the seed draws.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Write the file of this epoch, as its leader."""
    from troth.committee.rating.contract import EpochParts
    from troth.committee.rating.contract import propose as write

    place = scores.place()
    show(asyncio.run(write(file.expanduser(), place, EpochParts(examined, credits, after), proof)), as_json)


@app.command()
@grouped
def sign(
    file: FileArgument,
    *,
    scores: EventsOptions,
    home: MemberHomeOption = DEFAULT_HOME,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the file against the chain and add this member's signature, once for an epoch."""
    from troth.committee.rating.contract import sign as add

    place = scores.place()
    show(asyncio.run(add(file.expanduser(), _folder(home), place, password_file)), as_json)


@app.command()
@grouped
def report(
    file: FileArgument,
    *,
    silent: Annotated[list[str], typer.Option(help="A node that did not answer this member, 0x…. Repeat it.")],
    scores: EventsOptions,
    home: MemberHomeOption = DEFAULT_HOME,
    password_file: PasswordOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add this member's word that nodes were silent: more than 1/3 of the members make it count."""
    from troth.committee.rating.contract import report as add

    place = scores.place()
    show(asyncio.run(add(file.expanduser(), silent, _folder(home), place, password_file)), as_json)


@app.command()
@grouped
def settle(
    file: FileArgument,
    *,
    scores: EventsOptions,
    paying: PayingOptions,
    as_json: JsonOption = False,
) -> None:
    """Bring the file to the chain, which computes the scores (dry run by default); anybody may.

    If somebody settled it without the file's reports of silence, this brings them.
    """
    from troth.committee.rating.contract import settle as bring

    show(asyncio.run(bring(file.expanduser(), scores.place(), paying.payer())), as_json)


@app.command()
@grouped
def expel(
    operator: OperatorArgument,
    first: Annotated[Path, typer.Argument(help="A file of an epoch that the member signed.")],
    second: Annotated[Path, typer.Argument(help="Another one of the same epoch.")],
    *,
    scores: ScoresOptions,
    paying: PayingOptions,
    as_json: JsonOption = False,
) -> None:
    """Show that a member signed two updates for one epoch (dry run by default).

    It loses its bond, and you get a tenth.
    """
    from troth.committee.rating.contract import expel as prove

    show(asyncio.run(prove(operator, first, second, scores.place(), paying.payer())), as_json)


def _folder(home: Path) -> Path:
    return home.expanduser().resolve()
