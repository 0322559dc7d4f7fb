"""The [overlay] table in the file of whoever has an entry, a scheduler's or a node's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import msgspec

from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address, to_address
from troth.transport.errors import EntryMisconfigured


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


class OverlaySection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``address`` as proxies reach it, name:port; the rest as in `entry.OverlayEntry`."""

    address: str
    committee: str
    host: str = "0.0.0.0"  # noqa: S104 - proxies are elsewhere
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 8444
    publish_seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 1800.0


def entry_of(section: OverlaySection | None) -> OverlayEntry | None:
    """The entry that a table describes, None without one; raises EntryMisconfigured naming the key."""
    if section is None:
        return None
    host, _, port = section.address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise EntryMisconfigured("overlay.address is name:port", section.address, "Write it as proxies reach it.")
    try:
        committee = to_address(section.committee)
    except ProtocolError as error:
        raise EntryMisconfigured("overlay.committee is no address", section.committee, error.remedy) from error
    return OverlayEntry(section.host, section.port, (host.strip("[]"), int(port)), committee, section.publish_seconds)


def overlay_table(committee: str, host: str, port: int, address: str = "") -> str:
    """The table as text for a new file; empty without a committee. ``address`` is host and port unless given."""
    if not committee:
        return ""

    def text(value: str) -> str:
        return json.dumps(value, ensure_ascii=False)

    return (
        f"\n[overlay]\nhost = {text(host)}\nport = {port}\n"
        f"address = {text(address or f'{host}:{port}')}\ncommittee = {text(committee)}\n"
    )
