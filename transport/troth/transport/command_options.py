"""Options that commands of several packages have: the same flag, variable and words everywhere; and how results are
shown.

Commands that share several options take them as one parameter: a frozen dataclass whose fields are options, marked
`option_group`, in a command that is decorated `grouped`.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, dataclass_transform, get_type_hints
from urllib.parse import urlsplit

import typer

if TYPE_CHECKING:
    from troth.protocol.amounts import Asset, AssetPrice

PRICE_VARIABLE = "TROTH_PRICE"
"""What one whole coin or token costs, such as 3150.20eur; `troth --price` sets it."""

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")

JsonOption = Annotated[bool, typer.Option("--json", envvar="TROTH_JSON", help="Print JSON on standard output.")]
BroadcastOption = Annotated[
    bool, typer.Option("--broadcast", envvar="TROTH_BROADCAST", help="Send the transaction; without it, a dry run.")
]
AMOUNT = "An amount such as 0.01ether, 500gwei or 1000units; without a unit, whole coins or tokens."
PRICES = "PROMPT,CACHED,WRITTEN: with a unit, such as 0.0009ether, for a million positions; else units per 10^9."
FactoryOption = Annotated[
    str, typer.Option("--factory", envvar="TROTH_FACTORY", help="Factory of the deployment; --network names it too.")
]
BankOption = Annotated[
    str, typer.Option("--bank", envvar="TROTH_BANK", help="The deployment's Bank, where the factory made several.")
]
StartBlockOption = Annotated[
    int,
    typer.Option(
        "--start-block",
        envvar="TROTH_START_BLOCK",
        min=0,
        help="A block not after the deployment: none before is read.",
    ),
]
PasswordOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        envvar="TROTH_PASSWORD_FILE",
        help="File whose first line opens the keyfiles, mode 0600. Default: a terminal is asked.",
    ),
]
HostOption = Annotated[str, typer.Option("--host", envvar="TROTH_HOST", help="Address to listen on.")]
PortOption = Annotated[int, typer.Option("--port", envvar="TROTH_PORT", help="Port to listen on.")]
OverlayPortOption = Annotated[
    int,
    typer.Option(
        "--overlay-port",
        envvar="TROTH_OVERLAY_PORT",
        help="Port for proxies of the overlay; without one they come to --port.",
    ),
]
OverlayAddressOption = Annotated[
    str,
    typer.Option(
        "--overlay-address",
        envvar="TROTH_OVERLAY_ADDRESS",
        help="name:port as proxies reach --overlay-port; default: host and port.",
    ),
]
Group = TypeVar("Group")
Command = TypeVar("Command", bound=Callable[..., None])


def http_address(value: str | None) -> str | None:
    """A chain node's address as it was given, if it can be one; wrong usage otherwise. Empty: none was given."""
    if not value:
        return value
    try:
        parts = urlsplit(value)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise typer.BadParameter(f"{value[:100]!r} is no HTTP address, like http://127.0.0.1:8545.")
    return value


def folder_path(value: Path | None) -> Path | None:
    """A folder's path as it was given, if there can be such a folder; wrong usage where it would lie in a file."""
    if value is None:
        return None
    place = value.expanduser()
    for above in (place, *place.parents):
        # Not pathlib's: these say no where nothing may be looked at.
        if os.path.exists(above) and not os.path.isdir(above):  # noqa: PTH110, PTH112
            raise typer.BadParameter(f"{str(value)[:200]!r} cannot be a folder: {str(above)[:200]!r} is a file.")
    return value


def keyfile(value: Path | None) -> Path | None:
    """A keyfile's path, if a keyfile is there; wrong usage otherwise. No password is asked for."""
    if value is None:
        return None
    # Not loaded for help.
    from troth.chain.errors import KeystoreError
    from troth.chain.keystore import address_in, keystore_path

    try:
        path = keystore_path(str(value))
        address_in(path)
    except KeystoreError as error:
        raise typer.BadParameter(str(error)) from error
    return path


RpcOption = Annotated[
    str, typer.Option("--rpc", envvar="TROTH_RPC", help="HTTP address of a chain node.", callback=http_address)
]
KeystoreOption = Annotated[
    Path | None,
    typer.Option(
        "--keystore", envvar="TROTH_KEYSTORE", callback=keyfile, help="Keyfile of the account that acts and pays."
    ),
]


def log_level(value: str) -> str:
    """A level of the log as Python names it; wrong usage otherwise."""
    if value.lower() not in LOG_LEVELS:
        raise typer.BadParameter(f"{value[:40]!r} is none of {', '.join(LOG_LEVELS)}.")
    return value


LogLevelOption = Annotated[
    str,
    typer.Option("--log-level", envvar="TROTH_LOG_LEVEL", callback=log_level, help="debug, info, warning or error."),
]


@dataclass_transform(kw_only_default=True, frozen_default=True)
def option_group(group: type[Group]) -> type[Group]:
    """A class whose annotated fields are options that several commands take together."""
    return dataclass(frozen=True, kw_only=True)(group)


def grouped(command: Command) -> Command:
    """A command of which each parameter that is an `option_group` became one option for each of its fields."""
    hints = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command)
    groups: dict[str, type[Any]] = {name: hints[name] for name in signature.parameters if is_dataclass(hints[name])}

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        for name, kind in groups.items():
            options[name] = kind(**{one.name: options.pop(one.name) for one in fields(kind)})
        command(*arguments, **options)

    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name in groups:
            parameters += _options_of(groups[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name]))
    del run.__wrapped__
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return run  # type: ignore[return-value]


def _options_of(group: type[Any]) -> list[inspect.Parameter]:
    """The fields of a group as parameters that are named."""
    hints = get_type_hints(group, include_extras=True)
    return [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, one in inspect.signature(group).parameters.items()
    ]


def asset_price() -> AssetPrice | None:
    """The price in whose currency amounts are shown, too; raises AmountError for one that cannot be read."""
    # Not loaded for help.
    from troth.protocol.amounts import AssetPrice

    named = os.environ.get(PRICE_VARIABLE)
    return AssetPrice.parse(named) if named else None


def priced(asset: Asset) -> Asset:
    """The asset with that price."""
    return replace(asset, price=asset_price())


def show(result: Mapping[str, Any], as_json: bool) -> None:
    """Print a result: aligned lines with units for people, one JSON object for programs."""
    if as_json:
        typer.echo(json.dumps(result))
        return
    from troth.protocol.amounts import lines, readable
    from troth.transport.errors import visible

    for line in lines(readable(result, asset_price())):
        # Contracts keep what strangers wrote: no name of theirs steers the terminal, or looks like a line of ours.
        typer.echo(visible(line))
