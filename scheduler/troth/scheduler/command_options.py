"""Options that several commands share, and how results are printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

HomeOption = Annotated[
    Path, typer.Option("--home", envvar="TROTH_HOME", help="Folder of this scheduler's configuration, keys and state.")
]
DEFAULT_HOME = Path("~/.troth/scheduler")


def folder_of(home: Path) -> Path:
    """The scheduler's folder as an absolute path."""
    return home.expanduser().resolve()


def show(result: dict[str, Any], *, as_json: bool) -> None:
    """Print a result: aligned lines for people, one object for programs."""
    if as_json:
        typer.echo(json.dumps(result))
        return
    width = max(len(name) for name in result)
    for name, value in result.items():
        typer.echo(f"{name.replace('_', ' '):<{width}}  {_plain(value, width)}")


def _plain(value: object, width: int) -> str:
    """A list as one line each; nothing as a dash."""
    if isinstance(value, list | tuple):
        return f"\n{'':<{width}}  ".join(str(one) for one in value) or "-"
    return "-" if value is None else str(value)
