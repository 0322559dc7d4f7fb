"""What `troth scheduler init` is told, and the keys that it makes where none are named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from troth.chain.keystore import create_account, create_vrf_secret, load_account, load_vrf_secret
from troth.protocol import vrf


@dataclass(frozen=True, slots=True)
class Wishes:
    """The command line of `init`."""

    rpc: str
    class_id: str
    model: Path
    ends: str
    host: str
    port: int
    endpoint: str
    start_block: int
    operator_keystore: Path | None
    vrf_keystore: Path | None
    committee: str = ""
    overlay_port: int = 8444
    overlay_address: str = ""


def operator_key(folder: Path, keystore: Path | None, password: str) -> str:
    """The operator's address, of a named keystore or of the folder's own, which is made where there is none."""
    if keystore is not None:
        return load_account(keystore.expanduser(), password).address
    path = folder / "keys" / "operator.json"
    return (load_account if path.exists() else create_account)(path, password).address


def vrf_public_key(folder: Path, keystore: Path | None, password: str) -> tuple[int, int]:
    """The same for the VRF key."""
    if keystore is not None:
        return vrf.public_key(load_vrf_secret(keystore.expanduser(), password))
    path = folder / "keys" / "vrf.json"
    return vrf.public_key((load_vrf_secret if path.exists() else create_vrf_secret)(path, password))
