"""What a directory list says (PlanetServe section 3.1; docs/directory.md)."""

from __future__ import annotations

from dataclasses import dataclass

from troth.overlay.circuits.descriptors import Directory, Place, RelayDescriptor


@dataclass(frozen=True, slots=True)
class ListedRelay:
    """A relay, as the members agreed on it.

    Attributes:
        relay: place, handshake key, and the operator's address ("0x…").
        region: a short word that its operator chose, or empty.
        bandwidth: kilobytes a second that it offers.
        since: Unix time from which the directory has known it without a break.
    """

    relay: RelayDescriptor
    region: str
    bandwidth: int
    since: int


@dataclass(frozen=True, slots=True)
class ListedDestination:
    """A party that answers requests: a scheduler, later a model node.

    Attributes:
        place: its overlay entry; proxies deliver there.
        seal_key: X25519 key to which clients seal (HPKE), 32 bytes.
        operator: its operator's address on chain.
        kind: "scheduler" or "node".
        issued: Unix time at which the operator signed this.
        signature: 65 bytes of the operator over all of it (EIP-712), so that no member can swap the seal key.
    """

    place: Place
    seal_key: bytes
    operator: str
    kind: str
    issued: int
    signature: bytes


@dataclass(frozen=True, slots=True)
class Listing:
    """One list. Valid from `valid_after` until before `valid_until`, Unix seconds."""

    valid_after: int
    valid_until: int
    relays: tuple[ListedRelay, ...]
    destinations: tuple[ListedDestination, ...]

    def directory(self) -> Directory:
        """Whom a relay may connect to under this list."""
        return Directory.of(
            tuple(listed.relay for listed in self.relays), tuple(listed.place for listed in self.destinations)
        )
