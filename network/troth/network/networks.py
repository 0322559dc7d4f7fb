"""The networks that a user keeps by name: a file each, in the user's folder of settings."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from troth.network.description import NAME, NetworkDescription, read_description, write_description
from troth.network.errors import NetworkError, NetworkUnknown


def networks_folder() -> Path:
    """Where files lie that --network NAME finds."""
    return platformdirs.user_config_path("troth", appauthor=False) / "networks"


def kept_names() -> list[str]:
    """The names of all networks that are kept."""
    return sorted(path.stem for path in networks_folder().glob("*.json") if NAME.fullmatch(path.stem))


def file_of(chosen: str) -> Path:
    """The file that --network FILE|NAME means: a name has neither a dot nor a slash. Raises NetworkUnknown."""
    if NAME.fullmatch(chosen) is None:
        return Path(chosen).expanduser()
    path = networks_folder() / f"{chosen}.json"
    if not path.is_file():
        names = ", ".join(kept_names()) or "none"
        remedy = (
            f"Known names: {names}. Keep a file with `troth network add FILE`, or write ./{chosen} for a file here."
        )
        raise NetworkUnknown("No network is kept under this name", chosen, remedy)
    return path


def find(chosen: str) -> NetworkDescription:
    """The network of --network FILE|NAME."""
    return read_description(file_of(chosen))


def keep(network: NetworkDescription, name: str) -> Path:
    """Keep a network under a name; NetworkError if the name is taken by another one."""
    path = networks_folder() / f"{name}.json"
    if path.exists():
        there = read_description(path)
        if (there.chain_id, there.factory, there.contracts) != (network.chain_id, network.factory, network.contracts):
            raise NetworkError("Another network has this name", path, "Choose another --name, or remove that file.")
    write_description(path, network)
    return path
