"""Where Troth keeps its files, the options that several commands share, and how results are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from troth.transport.command_options import show

HomeOption = Annotated[
    Path, typer.Option("--home", envvar="TROTH_HOME", help="Folder for configuration, keys, models and records.")
]

DEFAULT_HOME = Path("~/.troth").expanduser()

__all__ = ["DEFAULT_HOME", "HomeOption", "show"]
