"""What `troth relay init` writes, and a relay's own entry in a directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from troth.chain.new_files import create_file
from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.relay.configuration import (
    FILE,
    PUBLISH_SECONDS,
    RETRY_SECONDS,
    Committee,
    load,
    read_address,
    relay_entry,
    split_address,
    template,
)
from troth.overlay.relay.keys import create_handshake_key, create_operator_key, load_handshake_key, load_operator_key
from troth.protocol.typed_data import address_of
from troth.transport.errors import RelayMisconfigured
from troth.transport.identity import load_identity, load_or_create_identity
from troth.transport.interview import host_to_listen_on

LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RelayInitOptions:
    """The command line of `init`."""

    host: str
    port: int
    address: str
    metrics_port: int | None
    proxy: bool
    committee: Committee | None = None


def committee_of(contract: str, rpc: str, region: str, bandwidth: int) -> Committee | None:
    """The committee that the command line names, or None; raises RelayMisconfigured for half of it."""
    if not contract:
        if rpc or region or bandwidth:
            raise RelayMisconfigured("--rpc, --region and --bandwidth go with --committee", None, "Name the contract.")
        return None
    if not rpc:
        raise RelayMisconfigured("--committee needs --rpc", contract, "Name an Ethereum node that knows its members.")
    return Committee(read_address(contract), rpc, region, bandwidth, PUBLISH_SECONDS, RETRY_SECONDS)


def listening_host(address: str) -> str:
    """Where to listen for what reaches an address: on this machine alone where that or nothing names it."""
    return host_to_listen_on(split_address(address)[0].strip("[]") if address else LOCALHOST)


def initialise(folder: Path, wishes: RelayInitOptions) -> dict[str, object]:
    """Write the configuration and, where there are none, keys; returns what there is now."""
    file = folder / FILE
    if file.exists():
        raise RelayMisconfigured("There is a configuration already", file, "Edit it, or choose another --home.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    listen = wishes.host, wishes.port
    text = template(listen, wishes.address, wishes.metrics_port, wishes.committee, proxy=wishes.proxy)
    configuration = load(folder, text)
    load_or_create_identity(configuration.tls_folder)
    if not configuration.handshake_key.exists():
        create_handshake_key(configuration.handshake_key)
    if not configuration.operator_key.exists():
        create_operator_key(configuration.operator_key)
    # At the end, so that the command can be given again, corrected or after a kill. Only its user may read it: the
    # address of a chain node may hold a provider's secret.
    create_file(file, text.encode())
    relay = own_descriptor(folder)
    return {
        "tls_key_hash": "0x" + relay.name.hex(),
        "handshake_key": "0x" + relay.handshake_key.hex(),
        "operator": relay.operator,
        "address": wishes.address,
        "config": str(file),
        "next": [
            *([] if wishes.committee else [f"put others' entries into {configuration.directory}"]),
            f"troth relay start --home {folder}",
        ],
    }


def own_descriptor(folder: Path) -> RelayDescriptor:
    """This relay as a directory should name it."""
    configuration = load(folder)
    host, port = configuration.address
    place = PinnedAddress(host, port, load_identity(configuration.tls_folder).spki_sha256)
    public = load_handshake_key(configuration.handshake_key).public_key().public_bytes_raw()
    return RelayDescriptor(place, public, address_of(load_operator_key(configuration.operator_key)))


def own_entry(folder: Path) -> str:
    """This relay's [[relay]] table."""
    return relay_entry(own_descriptor(folder))
