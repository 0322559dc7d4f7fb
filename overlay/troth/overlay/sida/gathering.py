"""From cloves to content, whoever else sends cloves too.

The receiver has no key before it has k shares, and some of what arrives may be forged. So a clove is judged twice:

1. On arrival, without a key: its share and tag must be what its own list of commitments says. Cloves with equal header
   and list form a group. A forger cannot join the senders' group with a share of his own, only open another.
2. Once a group has k shares, its key is known, and each fragment is checked alone against its tag.

Thus each clove costs one short hash and at most one tag over its own bytes, and a group of k costs one decoding,
whatever was sent: with n cloves there are at most n / k decodings, and no subset is ever tried.

What a group says is the sender's only if nobody else can make a group that opens. The session's secret sees to that.
Without one, k sources together can put a message of their own in its place; that it takes k, the receiver sees to: a
source has one clove, k = 1 is refused, and who knows the sender's threshold should say so (`InboxLimits.threshold`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from troth.overlay.sida import shamir
from troth.overlay.sida.clove import MOST_PATHS, TAG_BYTES, Clove, CloveSegment, parse
from troth.overlay.sida.erasure import code_for
from troth.overlay.sida.errors import MalformedClove, TooManyCloves
from troth.overlay.sida.sending import SegmentKey

MOST_SOURCES = 2 * MOST_PATHS
MOST_PER_SOURCE = 2
"""A path carries one clove of a segment, and after a repair perhaps another's. Without a secret it has one."""
GATHERING_OVERHEAD, CLOVE_OVERHEAD = 2048, 1024
"""Bytes charged for a segment, and for each clove beside its fragment: commitments, share, the objects around them."""


@dataclass(frozen=True, slots=True)
class BadClove:
    """A clove that was not what the sender made, or not the message that was decoded."""

    index: int
    source: Hashable
    why: str


class _Group:
    """Cloves that say the same of their segment, commitments included."""

    __slots__ = ("cloves", "dead", "good", "key", "members", "segment", "shares")

    def __init__(self, segment: CloveSegment) -> None:
        self.segment = segment
        self.shares: dict[int, bytes] = {}
        self.cloves: list[tuple[Clove, Hashable]] = []
        self.members: list[tuple[int, Hashable]] = []
        self.good: dict[int, bytes] = {}
        self.key: SegmentKey | None = None
        self.dead = False


class Gathering:
    """The cloves of one segment, from any number of sources, until k good ones are there."""

    def __init__(self, secret: bytes = b"") -> None:
        self._secret = secret
        self._most_per_source = MOST_PER_SOURCE if secret else 1
        self._groups: dict[bytes, _Group] = {}
        self._winner: _Group | None = None
        self._from: dict[Hashable, int] = {}
        self.held_bytes = GATHERING_OVERHEAD
        self.bad: list[BadClove] = []
        """Grows until the segment is forgotten: a late clove is judged too."""

    @property
    def complete(self) -> bool:
        """Whether the content was given out."""
        return self._winner is not None

    def add(self, clove: Clove, source: Hashable = None) -> tuple[CloveSegment, bytes] | None:
        """Take one clove; gives the segment with its content when this one completes it, once.

        Args:
            clove: parsed, for this message and segment.
            source: the path it came by, for blame and quota; None counts as one path per index.

        Raises:
            TooManyCloves: if the source or the segment has had its share.
            MalformedClove: for k = 1 without a secret.
        """
        if not self._secret and clove.segment.threshold.k == 1:
            raise MalformedClove("With k = 1 and no secret any path could be the sender", "k = 1")
        source = clove.index if source is None else source
        sent = self._from.get(source, 0)
        if sent >= self._most_per_source or (not sent and len(self._from) >= MOST_SOURCES):
            raise TooManyCloves("No more cloves of this segment are taken", source)
        self._from[source] = sent + 1
        if not clove.keeps_its_commitment():
            self._blame(clove.index, source, "share or tag is not the committed one")
            return None
        group = self._groups.get(clove.announced)
        if self._winner is not None:
            self._judge_late(group, clove, source)
            return None
        if group is None:
            group = self._groups[clove.announced] = _Group(clove.segment)
        return self._join(group, clove, source)

    def _join(self, group: _Group, clove: Clove, source: Hashable) -> tuple[CloveSegment, bytes] | None:
        group.members.append((clove.index, source))
        if group.dead:
            self._blame(clove.index, source, "its group does not decode")
            return None
        group.shares[clove.index] = clove.share
        group.cloves.append((clove, source))
        self.held_bytes += len(clove.fragment) + CLOVE_OVERHEAD
        k = group.segment.threshold.k
        if len(group.shares) < k:
            return None
        key = group.key
        if key is None:
            key = group.key = SegmentKey(shamir.combine(group.shares, k), self._secret)
        self._check_fragments(group, key)
        return self._open(group, key) if len(group.good) >= k else None

    def _check_fragments(self, group: _Group, key: SegmentKey) -> None:
        for clove, source in group.cloves:
            if not key.is_tag(clove.index, clove.fragment, clove.tag):
                self._blame(clove.index, source, "the fragment was changed")
            elif clove.index not in group.good:
                group.good[clove.index] = clove.fragment
                continue
            self.held_bytes -= len(clove.fragment)
        group.cloves.clear()

    def _open(self, group: _Group, key: SegmentKey) -> tuple[CloveSegment, bytes] | None:
        segment = group.segment
        padded = code_for(segment.threshold.n, segment.threshold.k).decode(group.good)
        content = key.open(memoryview(padded)[: segment.length + TAG_BYTES], segment.associated)
        if content is None:
            self.held_bytes -= sum(map(len, group.good.values()))
            group.dead = True
            self._blame_all(group, "its group does not decode")
        else:
            self._finish(group)
        group.good.clear()
        return None if content is None else (segment, content)

    def _finish(self, winner: _Group) -> None:
        """Keep what is needed to judge late cloves, and no fragment."""
        self._winner = winner
        self.held_bytes = GATHERING_OVERHEAD
        if len(self._groups) > 1:
            for group in self._groups.values():
                if group is not winner and not group.dead:
                    self._blame_all(group, "it belongs to another message under the same id")
            self._groups = {name: group for name, group in self._groups.items() if group is winner}

    def _judge_late(self, winner: _Group | None, clove: Clove, source: Hashable) -> None:
        if winner is None or winner.key is None:
            self._blame(clove.index, source, "it belongs to another message under the same id")
        elif not winner.key.is_tag(clove.index, clove.fragment, clove.tag):
            self._blame(clove.index, source, "the fragment was changed")

    def _blame_all(self, group: _Group, why: str) -> None:
        for index, source in group.members:
            self._blame(index, source, why)

    def _blame(self, index: int, source: Hashable, why: str) -> None:
        if not any(bad.index == index and bad.source == source for bad in self.bad):
            self.bad.append(BadClove(index, source, why))


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """The content, or None where fewer than k cloves were good; the bad ones, their place in the list as source."""

    content: bytes | None
    bad: list[BadClove]


def recover(cloves: Iterable[bytes], secret: bytes = b"") -> RecoveredSegment:
    """The content of one segment from its cloves as they travelled, in any order and condition."""
    gathering, content, malformed = Gathering(secret), None, []
    for place, wire in enumerate(cloves):
        try:
            done = gathering.add(parse(wire), place)
        except (MalformedClove, TooManyCloves) as error:
            malformed.append(BadClove(-1, place, error.what))
        else:
            content = done[1] if done else content
    return RecoveredSegment(content, malformed + gathering.bad)
