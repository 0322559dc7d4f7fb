"""The scheduler's TOML file, version 1: what it says, what it may say, and where it is wrong.

version = 1
[chain]    rpc, contract; optional chain_id, start_block, poll_seconds
[keys]     operator, vrf (keystore files; default keys/operator.json and keys/vrf.json in the folder)
[listen]   host, port; endpoint = "https://name:port" as registered; optional metrics_port
[[serve]]  class = "0x…", model = "folder"; ends = [15, 30], or placement = "auto"; optional context
[limits]   optional concurrent, keep_rows_hours
[waits]    optional token, prefill, locking, verification, opening (seconds)
[overlay]  optional: address = "name:port" as proxies reach it, committee = "0x…"; host, port, publish_seconds
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from troth.chain.keystore import keystore_path
from troth.overlay.sessions.entry_section import OverlayEntry, OverlaySection, overlay_table
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address, to_address
from troth.scheduler.desk import Waits
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.patience import Patience
from troth.scheduler.sections import (
    FILE,
    VERSION,
    Count,
    Keys,
    Listen,
    Seconds,
    Section,
    Serve,
    overlay_of,
    quoted,
    served_of,
)
from troth.scheduler.served import Served


class _Chain(Section, frozen=True, forbid_unknown_fields=True):
    rpc: str
    contract: str
    chain_id: int | None = None
    start_block: Annotated[int, msgspec.Meta(ge=0)] = 0
    poll_seconds: Seconds = 0.5


class _Limits(Section, frozen=True, forbid_unknown_fields=True):
    concurrent: Count = 8
    keep_rows_hours: Annotated[float, msgspec.Meta(ge=0, le=87_600)] = 24.0


class _Waits(Section, frozen=True, forbid_unknown_fields=True):
    token: Seconds = 10.0
    prefill: Seconds = 60.0
    locking: Seconds = 120.0
    verification: Seconds = 120.0
    opening: Seconds = 30.0


class _File(Section, frozen=True, forbid_unknown_fields=True):
    version: int
    chain: _Chain
    listen: Listen
    keys: Keys = Keys()
    serve: tuple[Serve, ...] = ()
    limits: _Limits = _Limits()
    waits: _Waits = _Waits()
    overlay: OverlaySection | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """The checked file; every path is absolute, every id is bytes."""

    folder: Path
    rpc: str
    contract: Address
    chain_id: int | None
    start_block: int
    poll_seconds: float
    operator_keystore: Path
    vrf_keystore: Path
    host: str
    port: int
    endpoint: str
    served: tuple[Served, ...]
    concurrent: int
    keep_rows_seconds: float
    waits: Waits
    overlay: OverlayEntry | None = None

    @property
    def seal_key(self) -> Path:
        """The file of the X25519 key to which clients seal."""
        return self.folder / "keys" / "seal.pem"


def load(folder: Path) -> Configuration:
    """Read `scheduler.toml` in `folder`; raises ConfigurationInvalid naming the key."""
    path = folder / FILE
    try:
        file = msgspec.toml.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise ConfigurationInvalid("There is no configuration", path, "Run: troth scheduler init") from error
    except msgspec.MsgspecError as error:
        raise ConfigurationInvalid(f"{path} cannot be used", error, "Correct the key that is named.") from error
    if file.version != VERSION:
        raise ConfigurationInvalid(
            f"{path} has version {file.version}, this is for {VERSION}", remedy="Upgrade the older."
        )
    return _checked(folder, file)


def _checked(folder: Path, file: _File) -> Configuration:
    if not file.listen.endpoint.startswith("https://"):
        raise ConfigurationInvalid("listen.endpoint starts with https://", file.listen.endpoint, "Correct it.")
    waits = file.waits
    return Configuration(
        folder=folder,
        rpc=file.chain.rpc,
        contract=_contract(file.chain.contract),
        chain_id=file.chain.chain_id,
        start_block=file.chain.start_block,
        poll_seconds=file.chain.poll_seconds,
        operator_keystore=folder / keystore_path(file.keys.operator),
        vrf_keystore=folder / keystore_path(file.keys.vrf),
        host=file.listen.host,
        port=file.listen.port,
        endpoint=file.listen.endpoint,
        served=tuple(served_of(folder, entry) for entry in file.serve),
        concurrent=file.limits.concurrent,
        keep_rows_seconds=file.limits.keep_rows_hours * 3600,
        waits=Waits(Patience(waits.token, waits.prefill), waits.locking, waits.verification, waits.opening),
        overlay=overlay_of(file.overlay),
    )


def _contract(text: str) -> Address:
    try:
        return to_address(text)
    except ProtocolError as error:
        raise ConfigurationInvalid("chain.contract is no address", text, error.remedy) from error


def template(values: dict[str, Any]) -> str:
    """A new file's text from what `init` was told."""
    return (
        f"version = {VERSION}\n\n"
        f"[chain]\nrpc = {quoted(values['rpc'])}\ncontract = {quoted(values['contract'])}\n"
        f"start_block = {values['start_block']}\n\n"
        f"[listen]\nhost = {quoted(values['host'])}\nport = {values['port']}\n"
        f"endpoint = {quoted(values['endpoint'])}\n"
        + "".join(
            f"\n[[serve]]\nclass = {quoted(entry['class'])}\n"
            + (f"ends = {list(entry['ends'])}\n" if entry["ends"] else 'placement = "auto"\n')
            + f"model = {quoted(entry['model'])}\n"
            for entry in values["serve"]
        )
        + overlay_table(
            values.get("committee", ""),
            values["host"],
            values.get("overlay_port", 0),
            values.get("overlay_address", ""),
        )
    )
