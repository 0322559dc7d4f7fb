"""What a directory says about relays and destinations."""

from __future__ import annotations

from dataclasses import dataclass

from troth.transport.errors import UnknownDestination

KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class PinnedAddress:
    """Where somebody listens, and the SHA-256 of the TLS key that must answer there. That hash is the name."""

    host: str
    port: int
    tls_key_hash: bytes

    def __post_init__(self) -> None:
        if len(self.tls_key_hash) != KEY_BYTES or not 0 < self.port < 1 << 16 or not self.host:
            raise UnknownDestination("A place has a host, a port and a hash of 32 bytes", f"{self.host}:{self.port}")

    @property
    def name(self) -> bytes:
        """32 bytes that name this party inside a circuit."""
        return self.tls_key_hash


@dataclass(frozen=True, slots=True)
class RelayDescriptor:
    """A relay as registered: its place, its long-term X25519 key, and who runs it (an address, or empty)."""

    place: PinnedAddress
    handshake_key: bytes
    operator: str = ""

    def __post_init__(self) -> None:
        if len(self.handshake_key) != KEY_BYTES:
            raise UnknownDestination("A handshake key is 32 bytes", self.handshake_key.hex(), "Correct the directory.")

    @property
    def name(self) -> bytes:
        """32 bytes that name this relay inside a circuit."""
        return self.place.tls_key_hash


@dataclass(frozen=True, slots=True)
class Directory:
    """Whom a relay may connect to, by name. Nothing outside of it can be reached through the overlay."""

    relays: dict[bytes, RelayDescriptor]
    destinations: dict[bytes, PinnedAddress]

    @classmethod
    def of(cls, relays: tuple[RelayDescriptor, ...], destinations: tuple[PinnedAddress, ...] = ()) -> Directory:
        """A directory of these parties."""
        return cls({relay.name: relay for relay in relays}, {place.name: place for place in destinations})
