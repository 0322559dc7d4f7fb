"""Options that the audit commands share, and how their values are read."""

from __future__ import annotations

from typing import Annotated

import typer

from troth.protocol.errors import InvalidField
from troth.protocol.types import Address, to_address


def read_address(text: str) -> Address:
    """An address from the command line; wrong usage otherwise."""
    try:
        return to_address(text)
    except InvalidField as error:
        raise typer.BadParameter(str(error)) from error


RpcOption = Annotated[str, typer.Option("--rpc", envvar="TROTH_RPC", help="HTTP address of a chain node.")]
StartOption = Annotated[
    int,
    typer.Option(
        "--start-block",
        envvar="TROTH_START_BLOCK",
        min=0,
        help="A block not after the contract's deployment; events are folded from there.",
    ),
]
LastOption = Annotated[
    int | None, typer.Option("--to-block", envvar="TROTH_TO_BLOCK", min=0, help="Last block read; default: the newest.")
]
JsonOption = Annotated[bool, typer.Option("--json", envvar="TROTH_JSON", help="One JSON object on standard output.")]
