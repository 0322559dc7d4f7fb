"""What a node tells its group, its load and its changes or all it holds, and the one encoding of it in bytes.

L is the moving average of the latency to serve a request, smoothed as round trips are in TCP; Q the requests that wait;
C how many run at once.

    version 1 | kind 1 | chunking 4 | epoch 8 | sequence 8 | latency µs 4 | queued 2 | running 2 | capacity 2 |
    pace ns 4 | pending 4 | taken 4 | the rest
    rest of a delta (kind 0) and of a snapshot (1): runs 4 | removed 4 | runs: parent 4, count 1, names 4 each |
    removed: names 4 each
    rest of a heartbeat (2): number 4

A chunk costs 4 bytes behind its parent and 9 alone; a chunk is one to sixteen cache blocks. Every count is checked
against the bytes that are there before anything is made from it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from troth.routing.prefixes.errors import UpdateMalformed
from troth.routing.prefixes.naming import ROOT

ALPHA: Final = 1 / 8
VERSION: Final = 2
MOST_NAMES: Final = 65_536
"""Names in one update: a snapshot of 8 million tokens in chunks of 128."""
LONGEST_RUN: Final = 255
_HEARTBEAT: Final = 2
_HEAD = struct.Struct("<BB4sQQIHHHIII")
_COUNTS = struct.Struct("<II")
_NUMBER = struct.Struct("<I")
_RUN = struct.Struct("<IB")
_BODY = _HEAD.size + _COUNTS.size
_LATENCY_UNIT = 1e-6
_PACE_UNIT = 1e-9
LARGEST_UPDATE: Final = _BODY + MOST_NAMES * (_RUN.size + 4)
"""Bytes; a receiver reads no more than that."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """One node's word about its load.

    Args:
        latency: L, seconds.
        queued: requests that wait.
        running: requests that are computed.
        capacity: C, requests that can be computed at once, at least 1.
        pace: seconds to compute one prompt token, moving average.
        pending: prompt tokens of all of them that are still to be computed, less what its cache has.
        taken: requests that it took since it started, whoever dealt them, its own entries' too; modulo 2³².
    """

    latency: float = 0.0
    queued: int = 0
    running: int = 0
    capacity: int = 1
    pace: float = 0.0
    pending: int = 0
    taken: int = 0

    @property
    def factor(self) -> float:
        """L · Q / C, seconds: about what a request would wait."""
        return self.latency * self.queued / self.capacity


class LatencyAverage:
    """L: the first sample as it is, each further one with weight `ALPHA`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._samples = 0

    def add(self, seconds: float) -> None:
        """Note how long a request took. What is no time is left out."""
        if not math.isfinite(seconds) or seconds < 0:
            return
        self._samples += 1
        self.seconds = seconds if self._samples == 1 else (1 - ALPHA) * self.seconds + ALPHA * seconds


@dataclass(frozen=True, slots=True)
class ChunkRun:
    """Chunks of one prefix, each the next one's parent; `parent` before the first (`ROOT` at a prompt's start)."""

    parent: int
    names: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """One message of one node.

    Args:
        whole: a snapshot, which replaces all that was said before; else a delta on top of `sequence` - 1.
        chunking: identity of the names, 4 bytes (`Naming.identity`).
        epoch: when the node began to count, in milliseconds; a restarted node has a later one.
        sequence: rises by one with each update of an epoch, from 1.
        load: how loaded the node is now.
        stored: chunks that it holds since, or, in a snapshot, all.
        removed: names that it holds no more, ascending; none in a snapshot.
    """

    whole: bool
    chunking: bytes
    epoch: int
    sequence: int
    load: NodeLoad
    stored: tuple[ChunkRun, ...] = ()
    removed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A node's load between two updates, without names.

    Args:
        chunking: identity of its names, 4 bytes.
        epoch: as in its updates.
        sequence: of its last update, 0 before the first: who has not seen that one missed it.
        number: rises by one with each heartbeat of an epoch, from 1.
        load: how loaded the node is now.
    """

    chunking: bytes
    epoch: int
    sequence: int
    number: int
    load: NodeLoad


def runs_of(parents: dict[int, int], longest: int) -> tuple[ChunkRun, ...]:
    """The fewest runs in which name to parent can be said, at most `longest` names each; the same for equal input."""
    children: dict[int, list[int]] = {}
    for name, parent in parents.items():
        children.setdefault(parent, []).append(name)
    heads = [(parent, name) for name, parent in parents.items() if parent not in parents or children[parent][0] != name]
    runs = []
    for parent, head in heads:
        names = [head]
        while names[-1] in children:
            names.append(children[names[-1]][0])
        for start in range(0, len(names), longest):
            runs.append(ChunkRun(names[start - 1] if start else parent, tuple(names[start : start + longest])))
    return tuple(runs)


def encode_update(update: Update) -> bytes:
    """The bytes of an update; raises UpdateMalformed for one that breaks a limit."""
    try:
        parts = [_packed_head(int(update.whole), update), _COUNTS.pack(len(update.stored), len(update.removed))]
        for run in update.stored:
            parts += [_RUN.pack(run.parent, len(run.names)), struct.pack(f"<{len(run.names)}I", *run.names)]
        parts.append(struct.pack(f"<{len(update.removed)}I", *update.removed))
    except (struct.error, OverflowError, ValueError) as error:
        raise UpdateMalformed("A value does not fit in an update", error) from error
    content = b"".join(parts)
    decode_update(content)
    return content


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """The bytes of a heartbeat; raises UpdateMalformed for one that breaks a limit."""
    try:
        content = _packed_head(_HEARTBEAT, heartbeat) + _NUMBER.pack(heartbeat.number)
    except (struct.error, OverflowError, ValueError) as error:
        raise UpdateMalformed("A value does not fit in a heartbeat", error) from error
    decode_heartbeat(content)
    return content


def decode(content: bytes) -> Update | Heartbeat:
    """What these bytes are; raises UpdateMalformed for anything but the one encoding of either."""
    return decode_heartbeat(content) if content[1:2] == bytes([_HEARTBEAT]) else decode_update(content)


def decode_update(content: bytes) -> Update:
    """The update in these bytes; raises UpdateMalformed for anything but its one encoding."""
    if not _BODY <= len(content) <= LARGEST_UPDATE:
        raise UpdateMalformed(f"An update has {_BODY} to {LARGEST_UPDATE} bytes", len(content))
    kind, chunking, epoch, sequence, load = _head(content)
    runs, gone = _COUNTS.unpack_from(content, _HEAD.size)
    if kind > 1 or sequence == 0 or (kind == 1 and gone):
        raise UpdateMalformed("A sequence starts at 1, and a snapshot removes nothing", (kind, sequence, gone))
    end = len(content) - 4 * gone
    if end < _BODY or runs * (_RUN.size + 4) > end - _BODY:
        raise UpdateMalformed("An update announces more than it brings", (runs, gone))
    stored = tuple(_runs(content, runs, end))
    removed = struct.unpack_from(f"<{gone}I", content, end)
    _require_rules(stored, removed)
    return Update(kind == 1, chunking, epoch, sequence, load, stored, removed)


def decode_heartbeat(content: bytes) -> Heartbeat:
    """The heartbeat in these bytes; raises UpdateMalformed for anything but its one encoding."""
    if len(content) != _HEAD.size + _NUMBER.size:
        raise UpdateMalformed(f"A heartbeat has {_HEAD.size + _NUMBER.size} bytes", len(content))
    kind, chunking, epoch, sequence, load = _head(content)
    (number,) = _NUMBER.unpack_from(content, _HEAD.size)
    if kind != _HEARTBEAT or number == 0:
        raise UpdateMalformed("A heartbeat is of its kind, and counted from 1", (kind, number))
    return Heartbeat(chunking, epoch, sequence, number, load)


def _packed_head(kind: int, said: Update | Heartbeat) -> bytes:
    load = said.load
    return _HEAD.pack(
        VERSION,
        kind,
        said.chunking,
        said.epoch,
        said.sequence,
        min(2**32 - 1, round(load.latency / _LATENCY_UNIT)),
        min(2**16 - 1, load.queued),
        min(2**16 - 1, load.running),
        min(2**16 - 1, load.capacity),
        min(2**32 - 1, round(load.pace / _PACE_UNIT)),
        min(2**32 - 1, load.pending),
        load.taken % 2**32,
    )


def _head(content: bytes) -> tuple[int, bytes, int, int, NodeLoad]:
    """(kind, chunking, epoch, sequence, load)."""
    version, kind, chunking, epoch, sequence, latency, queued, running, capacity, pace, pending, taken = (
        _HEAD.unpack_from(content)
    )
    if version != VERSION:
        raise UpdateMalformed("No update of this version", (version, kind), "Upgrade the older of both nodes.")
    if capacity == 0:
        raise UpdateMalformed("A node's capacity is at least 1", capacity)
    load = NodeLoad(latency * _LATENCY_UNIT, queued, running, capacity, pace * _PACE_UNIT, pending, taken)
    return kind, chunking, epoch, sequence, load


def _runs(content: bytes, count: int, end: int) -> Iterator[ChunkRun]:
    place = _BODY
    for _ in range(count):
        if place + _RUN.size > end:
            raise UpdateMalformed("A run is cut off", place)
        parent, names = _RUN.unpack_from(content, place)
        place += _RUN.size
        if names == 0 or place + 4 * names > end:
            raise UpdateMalformed("A run is empty or cut off", names)
        yield ChunkRun(parent, struct.unpack_from(f"<{names}I", content, place))
        place += 4 * names
    if place != end:
        raise UpdateMalformed("Bytes between the runs and what is removed", end - place)


def _require_rules(stored: tuple[ChunkRun, ...], removed: tuple[int, ...]) -> None:
    names = [name for run in stored for name in run.names]
    if len(names) + len(removed) > MOST_NAMES:
        raise UpdateMalformed(f"An update has at most {MOST_NAMES} names", len(names) + len(removed))
    once = set(names)
    if len(once) != len(names) or ROOT in once:
        raise UpdateMalformed("A name is stored once in an update, and is not 0")
    if any(one >= other for one, other in pairwise(removed)) or removed[:1] == (ROOT,):
        raise UpdateMalformed("Removed names stand in ascending order, each once, without 0")
    if not once.isdisjoint(removed):
        raise UpdateMalformed("A name is both stored and removed")
