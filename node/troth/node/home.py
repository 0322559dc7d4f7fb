"""Where Troth keeps its files, the options that several commands share, and how results are shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

Home = Annotated[
    Path, typer.Option("--home", envvar="TROTH_HOME", help="Folder for configuration, keys, models and records.")
]
Json = Annotated[bool, typer.Option("--json", envvar="TROTH_JSON", help="Print one JSON object on standard output.")]
Broadcast = Annotated[
    bool, typer.Option("--broadcast", envvar="TROTH_BROADCAST", help="Send the transaction; without it, a dry run.")
]
Rpc = Annotated[str, typer.Option("--rpc", envvar="TROTH_RPC", help="HTTP address of a chain node.")]
Keystore = Annotated[
    Path | None, typer.Option("--keystore", envvar="TROTH_KEYSTORE", help="Keyfile of the account that pays.")
]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", envvar="TROTH_PASSWORD_FILE", help="File whose first line opens the keyfile."),
]

DEFAULT_HOME = Path("~/.troth").expanduser()


def show(result: Mapping[str, Any], as_json: bool) -> None:
    """Print a result as one JSON object, or as aligned lines for a person."""
    if as_json:
        typer.echo(json.dumps(result))
        return
    for key, value in result.items():
        typer.echo(f"{key:<16} {json.dumps(value) if isinstance(value, dict | list) else value}")
