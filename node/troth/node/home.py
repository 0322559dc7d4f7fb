"""Where Troth keeps its files, the options that several commands share, and how results are shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

HomeOption = Annotated[
    Path, typer.Option("--home", envvar="TROTH_HOME", help="Folder for configuration, keys, models and records.")
]

DEFAULT_HOME = Path("~/.troth").expanduser()


def show(result: Mapping[str, Any], as_json: bool) -> None:
    """Print a result as one JSON object, or as aligned lines for a person."""
    if as_json:
        typer.echo(json.dumps(result))
        return
    for key, value in result.items():
        typer.echo(f"{key:<16} {json.dumps(value) if isinstance(value, dict | list) else value}")
