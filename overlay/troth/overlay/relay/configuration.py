"""A relay's two files: `relay.toml` is its own, the directory says whom it may connect to.

relay.toml      version = 1
                [listen]  host, port; address = "name:port" as others reach it; optional metrics_port (loopback)
                [relay]   optional proxy, directory (a file, where there is no committee)
                [committee]  optional: contract, rpc; region, bandwidth (kB/s), publish_seconds, retry_seconds
                [limits]  optional: the bounds of `limits.RelayLimits`, by the same names
                [waits]   optional drain (seconds)
directory.toml  [[relay]]        host, port, tls_key_hash, handshake_key; optional operator
                [[destination]]  host, port, tls_key_hash
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from troth.overlay.circuits.descriptors import Directory, PinnedAddress, RelayDescriptor
from troth.overlay.directory.codec import is_literal
from troth.overlay.relay.limits import RelayLimits
from troth.protocol.types import Address
from troth.transport.errors import RelayMisconfigured, UnknownDestination
from troth.transport.strict_toml import Hex32, Port, Seconds, Section, address_of, quoted, read_toml, require_version

FILE = "relay.toml"
VERSION = 1
PUBLISH_SECONDS, RETRY_SECONDS = 1800.0, 30.0

_Count = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
_Rate = Annotated[float, msgspec.Meta(gt=0, le=1e9)]


class _RelayListenTable(Section, frozen=True, forbid_unknown_fields=True):
    address: str
    host: str = "0.0.0.0"  # noqa: S104 - clients are elsewhere
    port: Port = 9001
    metrics_port: Port | None = None


class _RelayTable(Section, frozen=True, forbid_unknown_fields=True):
    proxy: bool = True
    directory: str = "directory.toml"


class _Committee(Section, frozen=True, forbid_unknown_fields=True):
    contract: str
    rpc: str
    region: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]{0,16}\Z")] = ""
    bandwidth: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)] = 0
    publish_seconds: Seconds = PUBLISH_SECONDS
    retry_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = RETRY_SECONDS


class _RelayLimitsTable(Section, frozen=True, forbid_unknown_fields=True):
    links: _Count | None = None
    links_per_host: _Count | None = None
    tls_handshakes: _Count | None = None
    tls_handshakes_per_host: _Count | None = None
    tls_seconds: Seconds | None = None
    circuits: _Count | None = None
    half_open: _Count | None = None
    extending: _Count | None = None
    setups_per_second: _Rate | None = None
    setup_burst: _Rate | None = None
    link_setups_per_second: _Rate | None = None
    link_setup_burst: _Rate | None = None
    backlog_bytes: _Count | None = None
    circuit_backlog_bytes: _Count | None = None
    circuit_bytes: _Count | None = None
    circuit_seconds: Seconds | None = None
    idle_seconds: Seconds | None = None
    half_open_seconds: Seconds | None = None
    extend_seconds: Seconds | None = None
    message_bytes: _Count | None = None
    open_messages: _Count | None = None
    messages_bytes: _Count | None = None
    message_seconds: Seconds | None = None
    exchanges_per_circuit: _Count | None = None
    exchange_seconds: Seconds | None = None
    reply_bytes: _Count | None = None


class _RelayWaitsTable(Section, frozen=True, forbid_unknown_fields=True):
    drain: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0


class _RelayFile(Section, frozen=True, forbid_unknown_fields=True):
    version: int
    listen: _RelayListenTable
    relay: _RelayTable = _RelayTable()
    committee: _Committee | None = None
    limits: _RelayLimitsTable = _RelayLimitsTable()
    waits: _RelayWaitsTable = _RelayWaitsTable()


class _KnownDestination(Section, frozen=True, forbid_unknown_fields=True):
    host: str
    port: Port
    tls_key_hash: Hex32


class _KnownRelay(_KnownDestination, frozen=True, forbid_unknown_fields=True):
    handshake_key: Hex32
    operator: str = ""


class _Directory(Section, frozen=True, forbid_unknown_fields=True):
    relay: tuple[_KnownRelay, ...] = ()
    destination: tuple[_KnownDestination, ...] = ()


@dataclass(frozen=True, slots=True)
class Committee:
    """Where this relay is listed, and as what.

    Attributes:
        contract: the Committee contract; rpc: an Ethereum node that knows its members.
        region: a short word; bandwidth: kilobytes a second that it offers.
        publish_seconds: from one publication to the next; retry_seconds: after a failed one.
    """

    contract: Address
    rpc: str
    region: str
    bandwidth: int
    publish_seconds: float
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class RelayConfiguration:
    """The checked file; every path is absolute."""

    folder: Path
    host: str
    port: int
    address: tuple[str, int]
    metrics_port: int | None
    proxy: bool
    directory: Path
    committee: Committee | None
    limits: RelayLimits
    drain_seconds: float

    @property
    def tls_folder(self) -> Path:
        """Where the TLS identity is."""
        return self.folder / "tls"

    @property
    def operator_key(self) -> Path:
        """The file of the secp256k1 key of who runs it."""
        return self.folder / "keys" / "operator.pem"

    @property
    def handshake_key(self) -> Path:
        """The file of the X25519 key."""
        return self.folder / "keys" / "handshake.pem"


def load(folder: Path, text: str | None = None) -> RelayConfiguration:
    """Read `relay.toml` in `folder`, or the text that it is going to be; raises RelayMisconfigured naming the key."""
    path = folder / FILE
    file = read_toml(path, _RelayFile, RelayMisconfigured, "Run: troth relay init", text)
    require_version(path, file.version, VERSION, RelayMisconfigured)
    set_limits = {name: value for name, value in msgspec.structs.asdict(file.limits).items() if value is not None}
    address = split_address(file.listen.address)
    if file.committee is not None and not is_literal(address[0]):
        raise RelayMisconfigured(
            "A relay that is listed has an IP address", address[0], "Write listen.address with the address, not a name."
        )
    return RelayConfiguration(
        folder=folder,
        host=file.listen.host,
        port=file.listen.port,
        address=address,
        metrics_port=file.listen.metrics_port,
        proxy=file.relay.proxy,
        directory=folder / Path(file.relay.directory).expanduser(),
        committee=None if file.committee is None else _committee(file.committee),
        limits=RelayLimits(**set_limits),
        drain_seconds=file.waits.drain,
    )


def load_directory(path: Path) -> Directory:
    """Read a directory; one that is not there is empty. Raises RelayMisconfigured."""
    if not path.exists():
        return Directory({}, {})
    file = read_toml(path, _Directory, RelayMisconfigured, "Write it, or name another.")
    try:
        return Directory.of(
            tuple(
                RelayDescriptor(_place(entry), bytes.fromhex(entry.handshake_key[2:]), entry.operator)
                for entry in file.relay
            ),
            tuple(_place(entry) for entry in file.destination),
        )
    except UnknownDestination as error:
        raise RelayMisconfigured(f"{path} cannot be used: {error.what}", error.value, error.remedy) from error


def relay_entry(relay: RelayDescriptor) -> str:
    """A relay's [[relay]] table in a directory."""
    place = relay.place
    return (
        f"[[relay]]\nhost = {quoted(place.host)}\nport = {place.port}\n"
        f'tls_key_hash = "0x{place.tls_key_hash.hex()}"\n'
        f'handshake_key = "0x{relay.handshake_key.hex()}"\n'
        + (f"operator = {quoted(relay.operator)}\n" if relay.operator else "")
    )


def template(
    listen: tuple[str, int], address: str, metrics_port: int | None, committee: Committee | None, *, proxy: bool
) -> str:
    """A new relay.toml from what `init` was told."""
    host, port = listen
    metrics = "" if metrics_port is None else f"metrics_port = {metrics_port}\n"
    return (
        f"version = {VERSION}\n\n[listen]\nhost = {quoted(host)}\nport = {port}\naddress = {quoted(address)}\n"
        f"{metrics}\n[relay]\nproxy = {str(proxy).lower()}\n"
        + ("" if committee is None else _committee_table(committee))
    )


def read_address(text: str) -> Address:
    """The Committee contract from user input; raises RelayMisconfigured."""
    return address_of("committee.contract", text, RelayMisconfigured)


def _committee(section: _Committee) -> Committee:
    return Committee(
        read_address(section.contract),
        section.rpc,
        section.region,
        section.bandwidth,
        section.publish_seconds,
        section.retry_seconds,
    )


def _committee_table(committee: Committee) -> str:
    return (
        f"\n[committee]\ncontract = {quoted(committee.contract)}\nrpc = {quoted(committee.rpc)}\n"
        f"region = {quoted(committee.region)}\nbandwidth = {committee.bandwidth}\n"
        f"publish_seconds = {committee.publish_seconds}\nretry_seconds = {committee.retry_seconds}\n"
    )


def _place(entry: _KnownDestination) -> PinnedAddress:
    return PinnedAddress(entry.host, entry.port, bytes.fromhex(entry.tls_key_hash[2:]))


def split_address(text: str) -> tuple[str, int]:
    """Host and port of a relay's address; raises RelayMisconfigured."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise RelayMisconfigured("listen.address is name:port", text, "Write it as others reach this relay.")
    return host.strip("[]"), int(port)
