"""From cloves to content, whoever else sends cloves too.

The receiver has no key before it has k shares, and some of what arrives may be forged. So a clove is judged twice:

1. On arrival, without a key: its share and tag must be what its own list of commitments says. Cloves with equal header
   and list form a group. A forger cannot join the senders' group with a share of his own, only open another.
2. Once a group has k shares, its key is known, and each fragment is checked alone against its tag.

Thus each clove costs one short hash and at most one tag over its own bytes, and a group of k costs one decoding,
whatever was sent: with n cloves there are at most n / k decodings, and no subset is ever tried.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from troth.overlay.sida import shamir
from troth.overlay.sida.clove import MOST_PATHS, TAG_BYTES, Clove, Segment, parse
from troth.overlay.sida.erasure import code_for
from troth.overlay.sida.errors import MalformedClove, TooManyCloves
from troth.overlay.sida.sealing import SegmentKey

MOST_CLOVES = 2 * MOST_PATHS
MOST_PER_SOURCE = 2
"""A path carries one clove of a segment, and after a repair perhaps another's."""
GATHERING_OVERHEAD, CLOVE_OVERHEAD = 2048, 1024
"""Bytes charged for a segment, and for each clove beside its fragment: commitments, share, the objects around them."""


@dataclass(frozen=True, slots=True)
class BadClove:
    """A clove that was not what the sender made, or not the message that was decoded."""

    index: int
    source: Hashable
    why: str


@dataclass(slots=True)
class _Group:
    """Cloves that say the same of their segment, commitments included."""

    segment: Segment
    shares: dict[int, bytes] = field(default_factory=dict)
    waiting: list[tuple[Clove, Hashable]] = field(default_factory=list)
    good: dict[int, bytes] = field(default_factory=dict)
    members: list[tuple[int, Hashable]] = field(default_factory=list)
    key: SegmentKey | None = None
    dead: bool = False


class Gathering:
    """The cloves of one segment, from any number of sources, until k good ones are there."""

    def __init__(self, secret: bytes = b"") -> None:
        self._secret = secret
        self._groups: dict[bytes, _Group] = {}
        self._winner: _Group | None = None
        self._from: dict[Hashable, int] = {}
        self._count = 0
        self.held_bytes = GATHERING_OVERHEAD
        self.bad: list[BadClove] = []
        """Grows until the segment is forgotten: a late clove is judged too."""

    @property
    def complete(self) -> bool:
        """Whether the content was given out."""
        return self._winner is not None

    def add(self, clove: Clove, source: Hashable = None) -> tuple[Segment, bytes] | None:
        """Take one clove; gives the segment with its content when this one completes it, once.

        Args:
            clove: parsed, for this message and segment.
            source: the path it came by, for blame and quota; None counts as one path per index.

        Raises:
            TooManyCloves: if the source or the segment has had its share.
        """
        source = clove.index if source is None else source
        self._admit(source)
        if not clove.keeps_its_commitment():
            self._blame(clove.index, source, "share or tag is not the committed one")
            return None
        name = clove.associated + clove.commitments
        if self._winner is not None:
            self._judge_late(self._winner if name in self._groups else None, clove, source)
            return None
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group(clove.segment)
        return self._join(group, clove, source)

    def _admit(self, source: Hashable) -> None:
        sent = self._from.get(source, 0)
        if sent >= MOST_PER_SOURCE or self._count >= MOST_CLOVES:
            raise TooManyCloves("No more cloves of this segment are taken", source)
        self._from[source] = sent + 1
        self._count += 1

    def _join(self, group: _Group, clove: Clove, source: Hashable) -> tuple[Segment, bytes] | None:
        group.members.append((clove.index, source))
        if group.dead:
            self._blame(clove.index, source, "its group does not decode")
            return None
        group.shares.setdefault(clove.index, clove.share)
        group.waiting.append((clove, source))
        self.held_bytes += len(clove.fragment) + CLOVE_OVERHEAD
        if len(group.shares) < group.segment.threshold.k:
            return None
        if group.key is None:
            shared_key = shamir.combine(group.shares, group.segment.threshold.k)
            group.key = SegmentKey(shared_key, self._secret)
        self._check_waiting(group, group.key)
        return self._open(group, group.key) if len(group.good) >= group.segment.threshold.k else None

    def _check_waiting(self, group: _Group, key: SegmentKey) -> None:
        for clove, source in group.waiting:
            if not key.is_tag(clove.index, clove.fragment, clove.tag):
                self._blame(clove.index, source, "the fragment was changed")
                self.held_bytes -= len(clove.fragment)
            elif clove.index in group.good:
                self.held_bytes -= len(clove.fragment)
            else:
                group.good[clove.index] = clove.fragment
        group.waiting.clear()

    def _open(self, group: _Group, key: SegmentKey) -> tuple[Segment, bytes] | None:
        threshold = group.segment.threshold
        padded = code_for(threshold.n, threshold.k).decode(group.good)
        self.held_bytes -= sum(map(len, group.good.values()))
        group.good.clear()
        content = key.open(memoryview(padded)[: group.segment.length + TAG_BYTES], group.segment.associated)
        if content is None:
            group.dead = True
            for index, source in group.members:
                self._blame(index, source, "its group does not decode")
            return None
        self._finish(group)
        return group.segment, content

    def _finish(self, winner: _Group) -> None:
        self._winner = winner
        for group in self._groups.values():
            if group is not winner and not group.dead:
                for index, source in group.members:
                    self._blame(index, source, "it belongs to another message under the same id")
        self._groups = {name: group for name, group in self._groups.items() if group is winner}
        self.held_bytes = GATHERING_OVERHEAD

    def _judge_late(self, winner: _Group | None, clove: Clove, source: Hashable) -> None:
        if winner is None or winner.key is None:
            self._blame(clove.index, source, "it belongs to another message under the same id")
        elif not winner.key.is_tag(clove.index, clove.fragment, clove.tag):
            self._blame(clove.index, source, "the fragment was changed")

    def _blame(self, index: int, source: Hashable, why: str) -> None:
        if not any(bad.index == index and bad.source == source for bad in self.bad):
            self.bad.append(BadClove(index, source, why))


@dataclass(frozen=True, slots=True)
class Recovered:
    """The content, or None where fewer than k cloves were good; the bad ones, their place in the list as source."""

    content: bytes | None
    bad: list[BadClove]


def recover(cloves: Iterable[bytes], secret: bytes = b"") -> Recovered:
    """The content of one segment from its cloves as they travelled, in any order and condition."""
    gathering, content, malformed = Gathering(secret), None, []
    for place, wire in enumerate(cloves):
        try:
            done = gathering.add(parse(wire), place)
        except (MalformedClove, TooManyCloves) as error:
            malformed.append(BadClove(-1, place, error.what))
        else:
            content = done[1] if done else content
    return Recovered(content, malformed + gathering.bad)
