"""Parameters as a founder names them on the command line."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from troth.network.errors import CreationRefused
from troth.protocol.market import shipped
from troth.protocol.market.types import Parameters
from troth.protocol.types import to_address

SHIPPED = {"main": shipped.MAIN, "demo": shipped.DEMO}


def read_parameters(name: str, asset: str, block_seconds: float) -> Parameters:
    """The shipped set of this name, or main's with the fields of a TOML file; windows for a chain of this pace.

    A file's windows are meant as they are written, so only those that it leaves out are stretched. Raises
    CreationRefused where a field is wrong.
    """
    base = SHIPPED.get(name, shipped.MAIN)
    if name != "demo" and block_seconds != shipped.BLOCK_SECONDS:
        base = shipped.stretched(base, block_seconds)
    chosen = base if name in SHIPPED else replace(base, **_fields(Path(name)))
    return replace(chosen, asset=to_address(asset)) if asset else chosen


def _fields(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text("utf-8"))
        replace(shipped.MAIN, **found)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, TypeError) as error:
        remedy = "Name main, demo, or a TOML file with fields of them, as the dry run prints them with --json."
        raise CreationRefused("These parameters cannot be read", f"{path}: {error}", remedy) from error
    if wrong := [key for key, value in found.items() if type(value) is not type(getattr(shipped.MAIN, key))]:
        remedy = "Windows are whole numbers of blocks, money whole numbers of units, addresses text."
        raise CreationRefused("Parameters of another type", ", ".join(wrong), remedy)
    return {key: to_address(value) if isinstance(value, str) else value for key, value in found.items()}
