"""Lists that depend on nothing but numbers, for tests of codec and signatures."""

from __future__ import annotations

import hashlib

from troth.overlay.attestation.measurement import Attested, Measurement
from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.directory.descriptors import DestinationEntry
from troth.overlay.directory.listing import ListedDestination, ListedRelay, Listing
from troth.protocol import typed_data
from troth.protocol.typed_data import Domain, address_of
from troth.protocol.types import Address, Hash32

DOMAIN = Domain(31_337, Address("0x5FbDB2315678afecb367f032d93F642f64180aa3"))
AFTER, UNTIL = 1_800_000_000, 1_800_010_800


def secret(name: str) -> bytes:
    return hashlib.sha256(b"troth directory " + name.encode()).digest()


def relay(number: int, since: int = AFTER - 7200) -> ListedRelay:
    place = PinnedAddress(f"203.0.113.{number}", 9000 + number, secret(f"tls {number}"))
    return ListedRelay(
        RelayDescriptor(place, secret(f"handshake {number}"), address_of(secret(f"operator {number}"))),
        "eu-west",
        1000 * number,
        since,
    )


def destination(number: int) -> ListedDestination:
    place = PinnedAddress(f"2001:db8::{number}", 8443, secret(f"destination {number}"))
    seal, key, issued = secret(f"seal {number}"), secret(f"scheduler {number}"), AFTER - 60
    pin = Hash32(place.tls_key_hash)
    measured = Measurement("tdx", secret("registers"), secret("device"))
    attested = Attested(measured, UNTIL) if number == 2 else None
    said = (str(measured), UNTIL) if attested else ("", 0)
    entry = DestinationEntry(place.host, place.port, pin, Hash32(seal), "scheduler", issued, *said)
    signature = typed_data.sign(entry, DOMAIN, key)
    return ListedDestination(place, seal, address_of(key), "scheduler", issued, signature, attested)


def listing(relays: int = 3, destinations: int = 2, after: int = AFTER, until: int = UNTIL) -> Listing:
    return Listing(
        after,
        until,
        tuple(sorted((relay(number) for number in range(1, relays + 1)), key=lambda one: one.relay.name)),
        tuple(sorted((destination(number) for number in range(1, destinations + 1)), key=lambda one: one.place.name)),
    )
