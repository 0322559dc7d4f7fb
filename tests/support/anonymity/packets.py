"""A pcap file taken apart: frames, who sends to whom, and the byte streams of TCP connections."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from socket import inet_ntoa
from typing import NamedTuple

from support.anonymity.capture import PCAP_HEADER, RECORD

ETHERNET = 14
IPV4, ARP = 0x0800, 0x0806
TCP = 6
_SYN, _ACK = 2, 16


class Frame(NamedTuple):
    """One Ethernet frame; `time` in seconds since the epoch."""

    time: float
    content: bytes

    @property
    def kind(self) -> int:
        """EtherType."""
        return int.from_bytes(self.content[12:14], "big")

    @property
    def protocol(self) -> int:
        """Protocol of an IPv4 packet."""
        return self.content[ETHERNET + 9]

    @property
    def ends(self) -> tuple[str, str] | None:
        """Source and destination address if it is an IPv4 packet."""
        if self.kind != IPV4:
            return None
        return inet_ntoa(self.content[26:30]), inet_ntoa(self.content[30:34])


class End(NamedTuple):
    """One end of a TCP connection."""

    address: str
    port: int


@dataclass
class Stream:
    """Bytes in order, and when each of them had arrived."""

    content: bytearray = field(default_factory=bytearray)
    _ends: list[int] = field(default_factory=list)
    _times: list[float] = field(default_factory=list)

    def append(self, time: float, content: bytes) -> None:
        """More bytes, of this time."""
        self.content += content
        self._ends.append(len(self.content))
        self._times.append(max(time, self._times[-1] if self._times else 0.0))

    def time_of(self, offset: int) -> float:
        """When the byte before `offset` was there."""
        return self._times[bisect_left(self._ends, offset)]


class Connection(NamedTuple):
    """One TCP connection: when, who dialed whom, and what each said."""

    began: float
    client: End
    server: End
    forward: Stream
    backward: Stream


class _Segment(NamedTuple):
    time: float
    number: int
    flags: int
    content: bytes


def read_frames(file: Path) -> list[Frame]:
    """All frames of a capture, in order."""
    content = file.read_bytes()
    assert content.startswith(PCAP_HEADER)
    frames, offset = [], len(PCAP_HEADER)
    while offset < len(content):
        seconds, nanoseconds, length, _ = RECORD.unpack_from(content, offset)
        offset += RECORD.size
        frames.append(Frame(seconds + nanoseconds / 1e9, content[offset : offset + length]))
        offset += length
    return frames


def connections(frames: list[Frame]) -> Iterator[Connection]:
    """Every TCP connection; fails if a part of one is missing."""
    flows: dict[tuple[End, End], list[_Segment]] = defaultdict(list)
    for frame in frames:
        if frame.kind == IPV4 and frame.protocol == TCP:
            source, destination, segment = _segment(frame)
            flows[source, destination].append(segment)
    begun = [ends for ends, segments in flows.items() if segments[0].flags & (_SYN | _ACK) == _SYN]
    for ends in begun:
        forward, backward = flows.pop(ends), flows.pop(ends[::-1], [])
        yield Connection(forward[0].time, *ends, _stream(forward), _stream(backward))
    assert not flows, "the capture lacks the beginning of a connection"


def _segment(frame: Frame) -> tuple[End, End, _Segment]:
    packet = frame.content[ETHERNET:]
    packet = packet[: int.from_bytes(packet[2:4], "big")]
    tcp = packet[(packet[0] & 15) * 4 :]
    source_port, destination_port, number = struct.unpack_from(">HHI", tcp)
    content = tcp[(tcp[12] >> 4) * 4 :]
    source, destination = inet_ntoa(packet[12:16]), inet_ntoa(packet[16:20])
    return End(source, source_port), End(destination, destination_port), _Segment(frame.time, number, tcp[13], content)


def _stream(segments: list[_Segment]) -> Stream:
    stream = Stream()
    if not segments:
        return stream
    first = segments[0].number + (segments[0].flags & _SYN) // _SYN

    def place(segment: _Segment) -> int:
        # Numbers are counted from the first byte, modulo 2**32; a keep-alive is one before what was sent.
        return (segment.number - first + 2**31) % 2**32 - 2**31

    for segment in sorted((one for one in segments if one.content), key=place):
        at = place(segment)
        assert at <= len(stream.content), "the capture lacks a part of a connection"
        fresh = segment.content[len(stream.content) - at :]
        if fresh:
            stream.append(segment.time, fresh)
    return stream
