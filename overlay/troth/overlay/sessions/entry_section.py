"""The [overlay] table in the file of whoever has an entry, a scheduler's or a node's."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.types import Address
from troth.transport.strict_toml import Port, Refuse, Seconds, Section, address_of, quoted


@dataclass(frozen=True, slots=True)
class OverlayEntry:
    """Where clients reach a party through the overlay, and the committee that lists it.

    Args:
        host, port: where it listens.
        address: as proxies reach it.
        publish_seconds: how often the committee is told again.
    """

    host: str
    port: int
    address: tuple[str, int]
    committee: Address
    publish_seconds: float


class OverlaySection(Section, frozen=True, forbid_unknown_fields=True):
    """``address`` as proxies reach it, name:port; the rest as in `entry.OverlayEntry`."""

    address: str
    committee: str
    host: str = "0.0.0.0"  # noqa: S104 - proxies are elsewhere
    port: Port = 8444
    publish_seconds: Seconds = 1800.0


def entry_of(section: OverlaySection | None, refuse: Refuse) -> OverlayEntry | None:
    """The entry that a table describes, None without one; what is wrong is refused, naming the key."""
    if section is None:
        return None
    host, _, port = section.address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise refuse("overlay.address is name:port", section.address, "Write it as proxies reach it.")
    committee = address_of("overlay.committee", section.committee, refuse)
    return OverlayEntry(section.host, section.port, (host.strip("[]"), int(port)), committee, section.publish_seconds)


def overlay_table(committee: str, host: str, port: int, address: str = "") -> str:
    """The table as text for a new file; empty without a committee. ``address`` is host and port unless given."""
    if not committee:
        return ""
    return (
        f"\n[overlay]\nhost = {quoted(host)}\nport = {port}\n"
        f"address = {quoted(address or f'{host}:{port}')}\ncommittee = {quoted(committee)}\n"
    )
