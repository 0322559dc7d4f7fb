"""Options of the audits of per-task contracts, and how their values are read."""

from __future__ import annotations

from typing import Annotated

import typer

from troth.audit.checks import NUMBERS
from troth.protocol.errors import InvalidField
from troth.protocol.types import Hash32, to_hash32


def read_task(text: str) -> Hash32:
    """A task id from the command line; wrong usage otherwise."""
    try:
        return to_hash32(bytes.fromhex(text.removeprefix("0x")))
    except (InvalidField, ValueError) as error:
        raise typer.BadParameter("A task id is 0x and 64 hexadecimal digits.") from error


def read_checks(names: list[str] | None) -> tuple[str, ...]:
    """The checks to carry out, all of them without a name; wrong usage for an unknown one."""
    unknown = [name for name in names or () if name.upper() not in NUMBERS]
    if unknown:
        raise typer.BadParameter(f"There is no check {unknown[0]}; they are {NUMBERS[0]} to {NUMBERS[-1]}.")
    return tuple(name.upper() for name in names or ()) or NUMBERS


ContractOption = Annotated[
    str, typer.Option("--contract", envvar="TROTH_CONTRACT", help="Address of the Troth contract.")
]

CheckOption = Annotated[
    list[str] | None, typer.Option("--check", envvar="TROTH_CHECK", help="Carry out this check only; may be repeated.")
]
