"""The [overlay] table in the file of whoever has an entry, a scheduler's or a node's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from troth.overlay.attestation.errors import EvidenceMalformed
from troth.overlay.attestation.machine import LinuxMachine
from troth.overlay.attestation.measurement import Measurement, parse_measurement
from troth.overlay.directory.attesting import Attester
from troth.protocol.types import Address
from troth.transport.strict_toml import Port, Refuse, Seconds, Section, address_of, quoted


@dataclass(frozen=True, slots=True)
class ConfidentialEntry:
    """A machine that shows what it runs, and speaks only to others that do.

    Args:
        attester: its hardware.
        trusted: measurements of the machines to which it hands prompts and answers.
    """

    attester: Attester
    trusted: frozenset[Measurement]


@dataclass(frozen=True, slots=True)
class OverlayEntry:
    """Where clients reach a party through the overlay, and the committee that lists it.

    Args:
        host, port: where it listens.
        address: as proxies reach it.
        publish_seconds: how often the committee is told again.
        confidential: where its machine is attested; None for the anonymous tier.
    """

    host: str
    port: int
    address: tuple[str, int]
    committee: Address
    publish_seconds: float
    confidential: ConfidentialEntry | None = None


class ConfidentialSection(Section, frozen=True, forbid_unknown_fields=True):
    """[overlay.confidential]: ``machine`` is what the guest is, ``trusted`` the measurements of its peers.

    ``devices``: its graphics processors are vouched for, too. ``collateral``: another address than the vendor's service
    for its words about the machine. See docs/how-to/confidential.md.
    """

    machine: Literal["tdx", "sev-snp"]
    trusted: Annotated[list[str], Meta(min_length=1, max_length=64)]
    devices: bool = False
    collateral: str = ""


class OverlaySection(Section, frozen=True, forbid_unknown_fields=True):
    """``address`` as proxies reach it, name:port; the rest as in `entry.OverlayEntry`."""

    address: str
    committee: str
    host: str = "0.0.0.0"  # noqa: S104 - proxies are elsewhere
    port: Port = 8444
    publish_seconds: Seconds = 1800.0
    confidential: ConfidentialSection | None = None


def entry_of(section: OverlaySection | None, refuse: Refuse) -> OverlayEntry | None:
    """The entry that a table describes, None without one; what is wrong is refused, naming the key."""
    if section is None:
        return None
    host, _, port = section.address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise refuse("overlay.address is name:port", section.address, "Write it as proxies reach it.")
    committee = address_of("overlay.committee", section.committee, refuse)
    place, confidential = (host.strip("[]"), int(port)), _confidential(section.confidential, refuse)
    return OverlayEntry(section.host, section.port, place, committee, section.publish_seconds, confidential)


def _confidential(section: ConfidentialSection | None, refuse: Refuse) -> ConfidentialEntry | None:
    if section is None:
        return None
    if section.collateral and not section.collateral.startswith("https://"):
        raise refuse("overlay.confidential.collateral starts with https://", section.collateral, "Correct it.")
    try:
        trusted = frozenset(parse_measurement(text) for text in section.trusted)
    except EvidenceMalformed as error:
        raise refuse(f"overlay.confidential.trusted: {error.what}", error.value, error.remedy) from error
    machine = LinuxMachine(section.machine, devices=section.devices, service=section.collateral)
    return ConfidentialEntry(machine, trusted)


def overlay_table(committee: str, host: str, port: int, address: str = "") -> str:
    """The table as text for a new file; empty without a committee. ``address`` is host and port unless given."""
    if not committee:
        return ""
    return (
        f"\n[overlay]\nhost = {quoted(host)}\nport = {port}\n"
        f"address = {quoted(address or f'{host}:{port}')}\ncommittee = {quoted(committee)}\n"
    )
