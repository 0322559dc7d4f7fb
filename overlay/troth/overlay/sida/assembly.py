"""One message on its way in: its segments in order, a few at a time."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from troth.overlay.sida.clove import Clove, CloveSegment
from troth.overlay.sida.errors import LateClove, OutOfWindow
from troth.overlay.sida.gathering import BadClove, Gathering

AHEAD = 64
"""Segments gathered at a time: at 100 tokens a second, two thirds of a second between the fast and the slow path."""
BEHIND = 8
"""Segments given out whose late cloves are still judged."""


@dataclass(frozen=True, slots=True)
class SegmentContent:
    """One segment's content, given out in order."""

    message_id: bytes
    number: int
    content: bytes
    last: bool


class Assembly:
    """Gathers the segments of one message and gives them out in order, each once."""

    def __init__(self, secret: bytes = b"") -> None:
        self._secret = secret
        self._gatherings: dict[int, Gathering] = {}
        self._ready: dict[int, tuple[CloveSegment, bytes]] = {}
        self._end: int | None = None
        self.next_number = 0
        self.ended = False
        self.held_bytes = 0
        """Bytes that wait here: fragments, content, and what is kept around them."""

    @property
    def bad(self) -> list[BadClove]:
        """Bad cloves of the segments that are still remembered."""
        return [bad for gathering in self._gatherings.values() for bad in gathering.bad]

    def add(self, clove: Clove, source: Hashable = None) -> list[SegmentContent]:
        """Take a clove of this message; gives the parts that can be given out now.

        Raises:
            LateClove: for a segment long done, or beyond the message's end.
            OutOfWindow: for a segment too far ahead.
            TooManyCloves: as `Gathering.add` does.
        """
        number = clove.segment.number
        self._check_place(number)
        gathering = self._gatherings.get(number) or self._begin(number)
        held = gathering.held_bytes
        done = gathering.add(clove, source)
        self.held_bytes += gathering.held_bytes - held
        if done is None:
            return []
        self._note(*done)
        return self._give_out()

    def _check_place(self, number: int) -> None:
        if number >= self.next_number + AHEAD:
            raise OutOfWindow(f"Segment {self.next_number} is awaited, {AHEAD} are kept", number)
        if (self._end is not None and number > self._end) or number < self.next_number - BEHIND:
            raise LateClove("This segment is over, or lies behind the message's end", number)

    def _begin(self, number: int) -> Gathering:
        gathering = self._gatherings[number] = Gathering(self._secret)
        self.held_bytes += gathering.held_bytes
        return gathering

    def _note(self, segment: CloveSegment, content: bytes) -> None:
        self._ready[segment.number] = segment, content
        self.held_bytes += len(content)
        if segment.last:
            self._end = segment.number
            for number in [number for number in self._gatherings if number > segment.number]:
                self._drop(number)

    def _give_out(self) -> list[SegmentContent]:
        parts = []
        while not self.ended and self.next_number in self._ready:
            segment, content = self._ready.pop(self.next_number)
            self.held_bytes -= len(content)
            parts.append(SegmentContent(segment.message_id, segment.number, content, segment.last))
            self._drop(self.next_number - BEHIND)
            self.next_number += 1
            self.ended = segment.last
        return parts

    def _drop(self, number: int) -> None:
        gathering = self._gatherings.pop(number, None)
        self.held_bytes -= gathering.held_bytes if gathering else 0
        _, content = self._ready.pop(number, (None, b""))
        self.held_bytes -= len(content)
