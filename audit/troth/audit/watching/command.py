"""`troth audit watch`: its options."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from troth.audit.checks import NUMBERS
from troth.audit.display import guarded
from troth.audit.options import WatchedOptions, read_address
from troth.transport.command_options import (
    AMOUNT,
    JsonOption,
    KeystoreOption,
    PasswordOption,
    folder_path,
    grouped,
)

DEFAULT_HOME = Path("~/.troth/watch")

HomeOption = Annotated[
    Path,
    typer.Option(
        "--home", file_okay=False, callback=folder_path, envvar="TROTH_WATCH_HOME", help="Folder of the state."
    ),
]
EvidenceOption = Annotated[
    Path | None,
    typer.Option(
        "--evidence",
        envvar="TROTH_EVIDENCE",
        exists=True,
        file_okay=False,
        help="Folder where evidence is handed in.",
    ),
]
PromisesOption = Annotated[
    Path | None,
    typer.Option(
        "--promises",
        envvar="TROTH_PROMISES",
        exists=True,
        dir_okay=False,
        help="Promises of inclusion, in JSON lines.",
    ),
]
MostBondOption = Annotated[
    str,
    typer.Option(
        "--most-bond",
        envvar="TROTH_MOST_BOND",
        help=f"Most that is put up for a case; none: nothing is. {AMOUNT}",
    ),
]


@grouped
def watch(
    *,
    watched: WatchedOptions,
    home: HomeOption = DEFAULT_HOME,
    evidence: EvidenceOption = None,
    promises: PromisesOption = None,
    act: Annotated[
        bool, typer.Option("--act", envvar="TROTH_ACT", help="Convict, and bring rejections: needs --keystore.")
    ] = False,
    most_bond: MostBondOption = "",
    keystore: KeystoreOption = None,
    password_file: PasswordOption = None,
    once: Annotated[
        bool, typer.Option("--once", envvar="TROTH_ONCE", help="Look once and leave with the exit code.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", envvar="TROTH_INTERVAL", min=0.1, help="Seconds between two looks.")
    ] = 15.0,
    check: Annotated[
        list[str] | None,
        typer.Option("--check", envvar="TROTH_AUDIT_CHECK", help="Carry out this check only; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Watch a deployment and its schedulers' logs, and show findings as they appear. Exit codes as of an audit."""
    unknown = [one for one in check or () if one.upper() not in NUMBERS]
    if unknown:
        raise typer.BadParameter(f"There is no check {unknown[0]} here; there are {', '.join(NUMBERS)}.")
    if act and (keystore is None or evidence is None):
        raise typer.BadParameter("To --act there must be a --keystore, and --evidence to act on.")
    # Not loaded for other audits: what carries cases is large.
    from troth.audit.watching.terminal import Printer, Watching, run

    told = Watching(
        rpc=watched.rpc,
        factory=read_address(watched.factory),
        bank=read_address(watched.bank) if watched.bank else None,
        start=watched.start_block,
        folder=home.expanduser(),
        evidence=evidence,
        promises=promises,
        only=frozenset(one.upper() for one in check or ()),
        keystore=keystore if act else None,
        password_file=password_file,
        most_bond=most_bond,
        interval=interval,
        services=watched.services(),
    )
    printer = Printer(told, as_json)
    with suppress(KeyboardInterrupt):
        guarded(lambda: asyncio.run(run(told, printer, once)))
    raise typer.Exit(int(printer.code))
