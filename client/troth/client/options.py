"""Options that several client commands share, and how their results are told."""

from __future__ import annotations

import json
import math
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from troth.transport.command_options import (
    FactoryOption,
    JsonOption,
    PasswordOption,
    RpcOption,
    folder_path,
    option_group,
)

if TYPE_CHECKING:
    from troth.client.configuration import ClientConfiguration
    from troth.client.home import Home
    from troth.client.tabs.managing import Purse

DEFAULT_HOME = Path("~/.troth").expanduser()
Result = TypeVar("Result")

HomeOption = Annotated[
    Path,
    typer.Option(
        "--home",
        file_okay=False,
        callback=folder_path,
        envvar="TROTH_HOME",
        help="Folder for wallet, receipts, configuration.",
    ),
]
CheckOption = Annotated[
    str,
    typer.Option("--check", envvar="TROTH_CHECK", help="5% (any share), always, self or court."),
]
ModelOption = Annotated[
    str,
    typer.Option("--model", envvar="TROTH_OWN_MODEL", help="Folder of the registered model, for --check self."),
]
MaxPriceOption = Annotated[
    str,
    typer.Option(
        "--max-price",
        envvar="TROTH_MAX_PRICE",
        help="Most for a million tokens, such as 0.002ether, or PROMPT/WRITTEN.",
    ),
]
SchedulerOption = Annotated[
    str, typer.Option("--scheduler", envvar="TROTH_SCHEDULER", help="Operator address of the scheduler to use.")
]
ClassOption = Annotated[
    str,
    typer.Option(
        "--execution-class", envvar="TROTH_EXECUTION_CLASS", help="Execution class to use: its id, or its name."
    ),
]
CommitteeOption = Annotated[
    str,
    typer.Option(
        "--committee", envvar="TROTH_COMMITTEE", help="Committee contract: use the overlay whose directory it signs."
    ),
]
OverlayOption = Annotated[
    str,
    typer.Option("--overlay", envvar="TROTH_OVERLAY", help="on, or off: connect openly, the scheduler sees you."),
]
DirectOption = Annotated[
    bool | None,
    typer.Option(
        "--direct/--no-direct",
        envvar="TROTH_DIRECT",
        help="Enter at a node with the whole model, not at the scheduler; needs the overlay.",
    ),
]
ConfidentialOption = Annotated[
    bool,
    typer.Option(
        "--confidential",
        envvar="TROTH_CONFIDENTIAL",
        help="Only attested machines may read it: those that client.toml trusts, else nothing is sent.",
    ),
]
MaxCostOption = Annotated[
    str, typer.Option("--max-cost", envvar="TROTH_MAX_COST", help="Refuse to pay more, e.g. 0.01ether or 500gwei.")
]


@option_group
class ClientOptions:
    """Which client, and which deployment."""

    rpc: RpcOption = ""
    factory: FactoryOption = ""
    home: HomeOption = DEFAULT_HOME
    as_json: JsonOption = False

    def place(self) -> Home:
        """The folder of this client."""
        from troth.client.home import Home

        return Home(self.home.expanduser())

    def configuration(self, scheduler: str = "") -> ClientConfiguration:
        """client.toml, overridden by the options."""
        return read_configuration(self.place(), self.rpc, scheduler, factory=self.factory)


@option_group
class PayerOptions(ClientOptions):
    """The same, and what opens its wallet."""

    password_file: PasswordOption = None

    def purse(self) -> Purse:
        """The wallet, opened when something has to be signed."""
        from troth.client.tabs.managing import Purse

        return Purse(self.place(), self.password_file)


@option_group
class AskingOptions:
    """Whom a client asks, how, and what is checked."""

    max_price: MaxPriceOption = ""
    check: CheckOption = ""
    model: ModelOption = ""
    scheduler: SchedulerOption = ""
    execution_class: ClassOption = ""
    committee: CommitteeOption = ""
    overlay: OverlayOption = ""
    direct: DirectOption = None
    confidential: ConfidentialOption = False
    password_file: PasswordOption = None
    rpc: RpcOption = ""
    home: HomeOption = DEFAULT_HOME

    def place(self) -> Home:
        """The folder of this client."""
        from troth.client.home import Home

        return Home(self.home.expanduser())

    def configuration(self) -> ClientConfiguration:
        """client.toml, overridden by the options."""
        return read_configuration(
            self.place(),
            self.rpc,
            self.scheduler,
            self.execution_class,
            committee=self.committee,
            overlay=self.overlay,
            direct=self.direct,
            confidential=self.confidential,
            model=self.model,
        )


def tell(result: object, as_json: bool, text: str) -> None:
    """Print a result: JSON for programs, a text of the command's own for people."""
    typer.echo(json.dumps(result) if as_json else text)


def carried_out(work: Coroutine[Any, Any, Result]) -> Result:
    """What a coroutine gives; SystemExit where it was interrupted."""
    # Not loaded for help: forty modules.
    from troth.client.interrupts import interruptible

    return interruptible(work)


def millionths(value: float, least: int) -> int:
    """A sampling option as the request carries it; typer's bounds let "nan" through, so that is refused here."""
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a number")
    return max(round(value * 1_000_000), least)


def mode_of(direct: bool | None, *, confidential: bool = False) -> str:
    """The mode that --direct, --no-direct or --confidential names; empty where none was given."""
    if confidential and direct is False:
        raise typer.BadParameter("--confidential enters at a node: leave --no-direct out")
    if confidential:
        return "confidential"
    return "" if direct is None else "direct" if direct else "scheduler"


def read_configuration(
    home: Home,
    rpc: str = "",
    scheduler: str = "",
    execution_class: str = "",
    *,
    committee: str = "",
    overlay: str = "",
    direct: bool | None = None,
    confidential: bool = False,
    factory: str = "",
    model: str = "",
    tickets: str = "",
) -> ClientConfiguration:
    """client.toml with the given options in place of what it says; without a file the options must suffice."""
    # Not loaded for help.
    from msgspec.structs import replace

    from troth.client.configuration import ClientConfiguration, load
    from troth.client.market_table import MarketTable

    given = {"rpc": rpc, "scheduler": scheduler, "execution_class": execution_class}
    given |= {"committee": committee, "overlay": overlay, "mode": mode_of(direct, confidential=confidential)}
    given |= {"tickets": tickets}
    if factory and not home.configuration.exists():
        return ClientConfiguration(MarketTable(factory)).overridden(**given)
    found = load(home.configuration).overridden(**given)
    if model:
        found = replace(found, market=replace(found.market, model=model)).checked()
    if not factory or factory == found.market.factory:
        return found
    return replace(found, market=replace(found.market, factory=factory, bank="")).checked()
