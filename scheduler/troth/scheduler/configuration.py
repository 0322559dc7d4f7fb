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
from typing import Annotated, Any, Literal

import msgspec

from troth.chain.keystore import keystore_path
from troth.overlay.errors import EntryMisconfigured
from troth.overlay.sessions.entry_section import OverlayEntry, OverlaySection, entry_of, overlay_table
from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address, Hash32, segments_from_ends, to_address
from troth.scheduler.catalogue import Served, Texts
from troth.scheduler.desk import Waits
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.pipeline import Patience

FILE = "scheduler.toml"
VERSION = 1

_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
_Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file; an unknown key is an error, since a misspelt limit would silently not hold."""


class _Chain(_Section, frozen=True, forbid_unknown_fields=True):
    rpc: str
    contract: str
    chain_id: int | None = None
    start_block: Annotated[int, msgspec.Meta(ge=0)] = 0
    poll_seconds: _Seconds = 0.5


class Keys(_Section, frozen=True, forbid_unknown_fields=True):
    """Keystore files."""

    operator: str = "keys/operator.json"
    vrf: str = "keys/vrf.json"


class Listen(_Section, frozen=True, forbid_unknown_fields=True):
    """Where clients and nodes connect."""

    endpoint: str
    host: str = "0.0.0.0"  # noqa: S104 - clients are elsewhere
    port: _Port = 8443


class Serve(_Section, frozen=True, forbid_unknown_fields=True):
    """One served class."""

    class_: Annotated[str, msgspec.Meta(pattern="^0x[0-9a-fA-F]{64}$")] = msgspec.field(name="class")
    model: str
    ends: Annotated[tuple[int, ...], msgspec.Meta(max_length=32)] = ()
    placement: Literal["fixed", "auto"] = "fixed"
    context: _Count | None = None


class _Limits(_Section, frozen=True, forbid_unknown_fields=True):
    concurrent: _Count = 8
    keep_rows_hours: Annotated[float, msgspec.Meta(ge=0, le=87_600)] = 24.0


class _Waits(_Section, frozen=True, forbid_unknown_fields=True):
    token: _Seconds = 10.0
    prefill: _Seconds = 60.0
    locking: _Seconds = 120.0
    verification: _Seconds = 120.0
    opening: _Seconds = 30.0


class _File(_Section, frozen=True, forbid_unknown_fields=True):
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


def overlay_of(section: OverlaySection | None) -> OverlayEntry | None:
    """The overlay's entry, if there is one; raises ConfigurationInvalid."""
    try:
        return entry_of(section)
    except EntryMisconfigured as error:
        raise ConfigurationInvalid(error.what, error.value, error.remedy) from error


def served_of(folder: Path, entry: Serve) -> Served:
    """A table [[serve]] as the catalogue has it; raises ConfigurationInvalid."""
    texts = Texts.load(folder / Path(entry.model).expanduser())
    layers = msgspec.json.decode(texts.config).get("num_hidden_layers")
    if not entry.ends and entry.placement == "fixed":
        raise ConfigurationInvalid('A class has neither ends nor placement = "auto"', entry.class_, "Set one of them.")
    if isinstance(layers, int) and entry.ends:
        try:
            segments_from_ends(entry.ends, layers)
        except ProtocolError as error:
            remedy = f"End with {layers}, for example {layers // 2},{layers}."
            raise ConfigurationInvalid(
                f"The ends do not cut a model of {layers} layers", list(entry.ends), remedy
            ) from error
    return Served(
        Hash32(bytes.fromhex(entry.class_[2:])),
        entry.ends,
        texts,
        entry.context or texts.context,
        placing=entry.placement == "auto",
    )


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


def quoted(text: object) -> str:
    return msgspec.json.encode(str(text)).decode()
