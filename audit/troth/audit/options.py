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


LastOption = Annotated[
    int | None, typer.Option("--to-block", envvar="TROTH_TO_BLOCK", min=0, help="Last block read; default: the newest.")
]
