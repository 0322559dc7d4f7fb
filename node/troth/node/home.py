"""Where Troth keeps its files, and the option that names the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from troth.transport.command_options import folder_path

HomeOption = Annotated[
    Path,
    typer.Option(
        "--home",
        file_okay=False,
        callback=folder_path,
        envvar="TROTH_HOME",
        help="Folder for configuration, keys, models and records.",
    ),
]

DEFAULT_HOME = Path("~/.troth").expanduser()
