"""The [overlay] table in the file of whoever has an entry, a scheduler's or a node's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from troth.overlay.attestation.errors import EvidenceMalformed
from troth.overlay.attestation.machine import LinuxMachine
from troth.overlay.attestation.measurement import Measurement, parse_measurement
from troth.overlay.directory.attesting import Attester
from troth.protocol.types import Address
from troth.transport.strict_toml import Port, Refuse, Seconds, Section, address_of, quoted

EVERYWHERE = "0.0.0.0"  # noqa: S104 - proxies are elsewhere
HTTPS_PORT = 443


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
        host, port: where it listens; empty and 0 where it shares the port of the party's HTTPS.
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

    @property
    def shares(self) -> bool:
        """Whether proxies come to the same port as everybody else."""
        return not self.host


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
    """``address`` as proxies reach it, name:port; the rest as in `entry.OverlayEntry`.

    Without ``address`` the entry is on the port of [listen], and proxies reach it by the endpoint that is registered.
    With one, and without ``port``, it listens on the address's port.
    """

    committee: str
    address: str = ""
    host: str = ""
    port: Port | None = None
    publish_seconds: Seconds = 1800.0
    confidential: ConfidentialSection | None = None


def entry_of(section: OverlaySection | None, endpoint: str, refuse: Refuse) -> OverlayEntry | None:
    """The entry that a table describes, None without one; what is wrong is refused, naming the key.

    Args:
        endpoint: https://name:port of the party's own server.
    """
    if section is None:
        return None
    committee = address_of("overlay.committee", section.committee, refuse)
    confidential = _confidential(section.confidential, refuse)
    if section.address:
        place = _place_of(section.address, refuse)
        host, port = section.host or EVERYWHERE, section.port or place[1]
    elif section.host or section.port:
        remedy = "Write it as proxies reach that port, or leave host and port out: then it shares the port of [listen]."
        raise refuse("overlay.address is missing", f"{section.host}:{section.port}", remedy)
    else:
        place, host, port = shared_place(endpoint, refuse), "", 0
    return OverlayEntry(host, port, place, committee, section.publish_seconds, confidential)


def shared_place(endpoint: str, refuse: Refuse) -> tuple[str, int]:
    """Where proxies reach an entry that shares the port of this endpoint."""
    try:
        found = urlsplit(endpoint)
        host, port = found.hostname or "", found.port or HTTPS_PORT
    except ValueError as error:
        raise refuse("listen.endpoint is https://name:port", endpoint, "Write it as registered.") from error
    if not host:
        raise refuse("listen.endpoint is https://name:port", endpoint, "Write it as registered.")
    return host, port


def _place_of(address: str, refuse: Refuse) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise refuse("overlay.address is name:port", address, "Write it as proxies reach it.")
    return host.strip("[]"), int(port)


def _confidential(section: ConfidentialSection | None, refuse: Refuse) -> ConfidentialEntry | None:
    if section is None:
        return None
    if section.collateral and not section.collateral.startswith("https://"):
        what = "overlay.confidential.collateral starts with https://"
        raise refuse(what, section.collateral, "Write its whole address.")
    try:
        trusted = frozenset(parse_measurement(text) for text in section.trusted)
    except EvidenceMalformed as error:
        raise refuse(f"overlay.confidential.trusted: {error.what}", error.value, error.remedy) from error
    machine = LinuxMachine(section.machine, devices=section.devices, service=section.collateral)
    return ConfidentialEntry(machine, trusted)


def overlay_table(committee: str, host: str, port: int, address: str = "") -> str:
    """The table as text for a new file; empty without a committee.

    ``address`` is host and port unless given. With neither address nor port the entry shares the port of [listen].
    """
    if not committee:
        return ""
    if not port and not address:
        return f"\n[overlay]\ncommittee = {quoted(committee)}\n"
    listened = f"port = {port}\n" if port else ""
    return (
        f"\n[overlay]\nhost = {quoted(host)}\n{listened}"
        f"address = {quoted(address or f'{host}:{port}')}\ncommittee = {quoted(committee)}\n"
    )
