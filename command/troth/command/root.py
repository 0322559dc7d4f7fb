"""`troth`: one command whose sub-commands each package contributes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from troth.command.plugins import LazyGroup
from troth.command.rendering import show_error

app = typer.Typer(
    name="troth",
    cls=LazyGroup,
    help="Verified LLM inference from machines you need not trust.",
    epilog="Exit codes: 0 done, 1 an error that says what to do, 2 wrong usage, 130 interrupted; a command that has "
    "others says so. What sends a transaction is a dry run until --broadcast.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"troth {version('troth')}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    price: Annotated[
        str,
        typer.Option(
            "--price",
            envvar="TROTH_PRICE",
            help="What one coin or token costs, like 3150eur: shown beside amounts.",
        ),
    ] = "",
    max_fee: Annotated[
        str,
        typer.Option(
            "--max-fee",
            envvar="TROTH_MAX_FEE",
            help="Most that a unit of gas may cost, like 200gwei; without it 1000gwei.",
        ),
    ] = "",
    chain_timeout: Annotated[
        str,
        typer.Option(
            "--chain-timeout",
            envvar="TROTH_CHAIN_TIMEOUT",
            help="Seconds to wait for an answer of the chain node; without it 20.",
        ),
    ] = "",
    debug: Annotated[bool, typer.Option("--debug", envvar="TROTH_DEBUG", help="Show tracebacks.")] = False,
) -> None:
    """Verified LLM inference from machines you need not trust."""
    # These act before or after this point: --version eagerly, --debug in `main` when an error arrives.
    del show_version, debug
    if price:
        os.environ["TROTH_PRICE"] = price
    if max_fee:
        os.environ["TROTH_MAX_FEE"] = max_fee
    if chain_timeout:
        os.environ["TROTH_CHAIN_TIMEOUT"] = chain_timeout


def _wants_debug(arguments: Sequence[str]) -> bool:
    if _is_set("TROTH_DEBUG"):
        return True
    before_the_sub_command = arguments[: next((i for i, a in enumerate(arguments) if not a.startswith("-")), None)]
    return "--debug" in before_the_sub_command


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in {"1", "true", "yes", "on", "t", "y"}


def run(arguments: Sequence[str]) -> None:
    """Run the command line and exit, as `troth.command.main.main` says."""
    command = typer.main.get_command(app)
    try:
        command.main(args=list(arguments), prog_name="troth")
    except Exception as error:  # noqa: BLE001 - the outermost edge: shown to the user, never swallowed
        as_json = "--json" in arguments or _is_set("TROTH_JSON")
        sys.exit(show_error(error, as_json=as_json, debug=_wants_debug(arguments)))
