"""What somebody sees who hears every cable and has every link's TLS keys, but no key of a circuit or a session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from support.anonymity.packets import Connection, Frame, Stream, connections, read_frames
from support.anonymity.tls import KeyLog, Opened, Sealed, is_tls, open_connection

_LARGE_BIT, _SMALL, _LARGE, _HEADER = 0x80, 1024, 4096, 9
_COMMANDS = 5
_FRAME_HEADER = 21


class Unit(NamedTuple):
    """A cell (circuit id, body) or a delivery's frame (exchange, content) on one link, either way."""

    time: float
    identity: bytes
    body: bytes


@dataclass(frozen=True)
class Link:
    """All TLS connections between two addresses."""

    units: list[Unit] = field(default_factory=list)
    sealed: list[Sealed] = field(default_factory=list)


class Bare(NamedTuple):
    """A TCP connection without TLS."""

    time: float
    client: str
    server: str


@dataclass(frozen=True)
class Observed:
    """Everything that was captured; links by the pair of their ends' addresses."""

    frames: list[Frame]
    links: dict[frozenset[str], Link]
    bare: list[Bare]

    def during(self, start: float, end: float) -> Observed:
        """What came within this time; a link without anything is left out."""
        links = {
            ends: replace(
                link,
                units=[unit for unit in link.units if start <= unit.time < end],
                sealed=[record for record in link.sealed if start <= record.time < end],
            )
            for ends, link in self.links.items()
        }
        return Observed(
            [frame for frame in self.frames if start <= frame.time < end],
            {ends: link for ends, link in links.items() if link.sealed},
            [one for one in self.bare if start <= one.time < end],
        )


def observe(capture: Path, keys: KeyLog, destination: str) -> Observed:
    """Read a capture and open every TLS connection in it. What is said to `destination` are frames, the rest cells."""
    frames = read_frames(capture)
    links: dict[frozenset[str], Link] = {}
    bare: list[Bare] = []
    for connection in connections(frames):
        if not is_tls(connection):
            bare.append(Bare(connection.began, connection.client.address, connection.server.address))
            continue
        link = links.setdefault(frozenset((connection.client.address, connection.server.address)), Link())
        for opened in open_connection(connection, keys):
            link.units.extend(_units(connection, opened, destination))
            link.sealed.extend(opened.sealed)
    return Observed(frames, links, bare)


def _units(connection: Connection, opened: Opened, destination: str) -> Iterator[Unit]:
    cut = _frames if connection.server.address == destination else _cells
    return cut(opened.plain)


def _cells(stream: Stream) -> Iterator[Unit]:
    """docs/reference/overlay.md, "Cells"."""
    content, offset = bytes(stream.content), 0
    while offset < len(content):
        assert content[offset] & ~_LARGE_BIT < _COMMANDS, "this is no cell"
        end = offset + (_LARGE if content[offset] & _LARGE_BIT else _SMALL)
        if end > len(content):
            return
        yield Unit(stream.time_of(end), content[offset + 1 : offset + _HEADER], content[offset + _HEADER : end])
        offset = end


def _frames(stream: Stream) -> Iterator[Unit]:
    """docs/reference/overlay.md, "Delivery to a destination"."""
    content, offset = bytes(stream.content), 0
    while offset + _FRAME_HEADER <= len(content):
        start = offset + _FRAME_HEADER
        end = start + int.from_bytes(content[start - 4 : start], "big")
        if end > len(content):
            return
        yield Unit(stream.time_of(end), content[offset + 1 : start - 4], content[start:end])
        offset = end
