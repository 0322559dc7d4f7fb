"""Frozen vectors of the overlay's wire format: how they were made, so that a test can make them again."""

from __future__ import annotations

import hashlib
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from troth.overlay.cells import messages
from troth.overlay.cells.format import LARGE, SMALL
from troth.overlay.cells.messages import CellMessage, Parcel, ParcelKind, fragments
from troth.overlay.cells.onion import HopKeys, Onion, RelayLayer
from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.circuits.handshake import ClientShare, RelayIdentity, derive


def secret(label: str) -> bytes:
    """32 bytes that depend on the label alone."""
    return hashlib.sha256(b"troth overlay vector: " + label.encode()).digest()


def hop_keys(hop: int) -> HopKeys:
    """The keys of a hop of the vectors."""
    return HopKeys(*(secret(f"hop {hop} {name}") for name in ("forward", "forward pad", "backward", "backward pad")))


def layers(hops: int) -> tuple[Onion, list[RelayLayer]]:
    """A client's onion and its relays' layers."""
    onion, relays = Onion(secret("noise")), []
    for hop in range(1, hops + 1):
        onion.add(hop_keys(hop))
        relays.append(RelayLayer(hop_keys(hop)))
    return onion, relays


def through(relays: list[RelayLayer], body: bytes) -> list[bytes]:
    """The body on each link, from the client to behind the last relay."""
    seen = [body]
    for relay in relays:
        seen.append(b"".join(relay.open(seen[-1])))
    return seen


def back(relays: list[RelayLayer], payload: bytes) -> list[bytes]:
    """The body on each link, from the last relay of `relays` to the client."""
    seen = [b"".join(relays[-1].originate(payload))]
    for relay in reversed(relays[:-1]):
        seen.append(b"".join(relay.wrap(seen[-1])))
    return seen


def make() -> dict[str, Any]:
    """Every vector."""
    return {"handshake": _handshake(), "layers": [_layers(hops) for hops in (1, 2, 3, 4)], "message": _message()}


def _handshake() -> dict[str, str]:
    identity = RelayIdentity(secret("name"), X25519PrivateKey.from_private_bytes(secret("relay")))
    descriptor = RelayDescriptor(PinnedAddress("127.0.0.1", 1, identity.name), identity.public)
    share = ClientShare(descriptor, X25519PrivateKey.from_private_bytes(secret("client ephemeral")))
    ephemeral = X25519PrivateKey.from_private_bytes(secret("relay ephemeral"))
    theirs = share.secret.public_key()
    shared = ephemeral.exchange(theirs) + identity.secret.exchange(theirs)
    ours = ephemeral.public_key().public_bytes_raw()
    keys, proof = derive(shared, identity.name, identity.public, theirs.public_bytes_raw(), ours)
    assert share.finish(ours + proof) == keys
    return {
        "request": share.request().hex(),
        "reply": (ours + proof).hex(),
        "keys": (keys.forward + keys.forward_pad + keys.backward + keys.backward_pad).hex(),
    }


def _layers(hops: int) -> dict[str, Any]:
    onion, relays = layers(hops)
    payloads = [
        messages.encode(Parcel(ParcelKind.DATA, bytes([size % 251]) * 100), size) for size in (SMALL, LARGE, SMALL)
    ]
    forward = [through(relays, onion.seal(payload))[:-1] for payload in payloads]
    backward = [back(relays, payload) for payload in payloads]
    return {"hops": hops, "forward": _digests(forward), "backward": _digests(backward), "first": forward[0][0].hex()}


def _digests(cells: list[list[bytes]]) -> list[list[str]]:
    return [[hashlib.sha256(body).hexdigest() for body in bodies] for bodies in cells]


def _message() -> list[str]:
    message = CellMessage(7, bytes(range(256)) * 40, secret("destination"))
    return [f"{size} {hashlib.sha256(content).hexdigest()}" for size, content in fragments(message)]
