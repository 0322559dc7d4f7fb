"""The questions that an eavesdropper would ask. Each answers with the leaks that it found, in words."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from support.anonymity.links import Observed
from support.anonymity.packets import ARP, IPV4, TCP

WINDOW = 16
_NEIGHBOURING = 8
"""So many bytes of a secret betray it."""


@dataclass(frozen=True)
class Places:
    """Who is where. A path's relays are in order, the guard first."""

    client: str
    paths: tuple[tuple[str, ...], ...]
    destination: str

    @property
    def guards(self) -> set[str]:
        """The first relays."""
        return {path[0] for path in self.paths}

    @property
    def proxies(self) -> set[str]:
        """The last relays."""
        return {path[-1] for path in self.paths}

    @property
    def pairs(self) -> set[frozenset[str]]:
        """Who may talk to whom."""
        routes = [(self.client, *path, self.destination) for path in self.paths]
        return {frozenset(pair) for route in routes for pair in pairwise(route)}


def conversations(observed: Observed) -> set[frozenset[str]]:
    """Every pair of addresses between which a packet of any kind was sent."""
    return {frozenset(frame.ends) for frame in observed.frames if frame.ends}


def partners(observed: Observed, address: str) -> set[str]:
    """With whom an address exchanged packets."""
    return {other for pair in conversations(observed) if address in pair for other in pair - {address}}


def strangers(observed: Observed, places: Places) -> list[str]:
    """Packets between two who are no neighbours on a path."""
    return [" talks to ".join(sorted(pair)) for pair in conversations(observed) - places.pairs]


def without_tls(observed: Observed) -> list[str]:
    """Whatever is not TLS over TCP over IPv4 (or ARP, which reaches only the router)."""
    kinds = {frame.kind for frame in observed.frames} - {IPV4, ARP}
    protocols = {frame.protocol for frame in observed.frames if frame.kind == IPV4} - {TCP}
    return [
        *(f"a frame of type {kind:#06x}" for kind in kinds),
        *(f"a packet of protocol {protocol}" for protocol in protocols),
        *(f"{bare.client} dials {bare.server} without TLS" for bare in observed.bare),
    ]


def in_packets(observed: Observed, secrets: Mapping[str, bytes]) -> list[str]:
    """Secrets, or parts of them, in packets as they are on the wire."""
    return _found((frame.content for frame in observed.frames), secrets, "a packet")


def in_cells(observed: Observed, secrets: Mapping[str, bytes]) -> list[str]:
    """Secrets, or parts of them, in what the links' TLS protects."""
    found = []
    for ends, link in observed.links.items():
        units = (unit.identity + unit.body for unit in link.units)
        found += _found(units, secrets, f"what {_named(ends)} carries")
    return found


def equal_identities(observed: Observed) -> list[str]:
    """Circuit and exchange ids that occur on two links, as ids or anywhere in what another link carries."""
    identities = {ends: {unit.identity for unit in link.units} for ends, link in observed.links.items()}
    found = _shared(identities, "ids")
    for ends, link in observed.links.items():
        said = b"\0".join(unit.body for unit in link.units)
        for others, several in identities.items():
            if ends != others and any(identity in said for identity in several):
                found.append(f"an id of {_named(others)} is in what {_named(ends)} carries")
    return found


def equal_bytes(observed: Observed) -> list[str]:
    """Bodies of cells and deliveries that have 16 neighbouring bytes, at any offset, in common with another link's."""
    bodies = {ends: [unit.body for unit in link.units] for ends, link in observed.links.items()}
    return _shared({ends: _windows(several) for ends, several in bodies.items()}, "runs of 16 bytes")


def equal_records(observed: Observed) -> list[str]:
    """TLS records that have 16 neighbouring bytes, as they are on the wire, in common with another link's."""
    records = {ends: [record.content for record in link.sealed] for ends, link in observed.links.items()}
    return _shared({ends: _windows(several) for ends, several in records.items()}, "runs of 16 bytes in records")


def _found(contents: Iterable[bytes], secrets: Mapping[str, bytes], where: str) -> list[str]:
    whole = b"\0".join(contents)
    return [
        f"{name} is in {where}" for name, secret in secrets.items() if any(part in whole for part in _parts(secret))
    ]


def _parts(secret: bytes) -> Iterator[bytes]:
    """Pieces of a secret, as it is and as it may be written; base64 of each of the three ways it may be aligned."""
    for start in range(len(secret) - _NEIGHBOURING + 1):
        yield secret[start : start + _NEIGHBOURING]
    yield secret.hex().encode()
    for start in range(3):
        yield base64.b64encode(secret[start : start + 24])


def _shared(by_link: Mapping[frozenset[str], Iterable[object]], what: str) -> list[str]:
    """The pairs of links whose sets meet."""
    links = [(ends, set(values)) for ends, values in by_link.items()]
    found = []
    for number, (ends, values) in enumerate(links):
        for others, more in links[number + 1 :]:
            if count := len(values & more):
                found.append(f"{count} {what} on {_named(ends)} and on {_named(others)}")
    return found


def _named(ends: frozenset[str]) -> str:
    return "–".join(sorted(ends))


def _windows(bodies: Iterable[bytes]) -> set[int]:
    """A 64-bit hash of every 16 neighbouring bytes."""
    hashed: set[int] = set()
    for body in bodies:
        if len(body) >= WINDOW:
            windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(body, np.uint8), WINDOW)
            halves = np.ascontiguousarray(windows).view(np.uint64)
            hashed.update(_mixed(halves[:, 0] ^ _mixed(halves[:, 1])).tolist())
    return hashed


def _mixed(values: np.ndarray) -> np.ndarray:
    """A bijection of 64 bits that spreads them (SplitMix64, Steele, Lea, Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
