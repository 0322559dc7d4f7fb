"""Options that several commands share, and how results are printed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from troth.transport.command_options import show

HomeOption = Annotated[
    Path, typer.Option("--home", envvar="TROTH_HOME", help="Folder of this scheduler's configuration, keys and state.")
]
DEFAULT_HOME = Path("~/.troth/scheduler")


def folder_of(home: Path) -> Path:
    """The scheduler's folder as an absolute path."""
    return home.expanduser().resolve()


__all__ = ["DEFAULT_HOME", "HomeOption", "folder_of", "show"]
