"""All messages on their way in at one party, within a fixed memory, whoever sends.

A source is a path as the receiver sees it: a circuit, or a proxy's stream. What a message holds is on the account of
the source that opened it. Where bytes run out, the oldest message of the source that holds most goes; where places run
out, the oldest of the source that has most open. So who opens messages and never ends them evicts his own. First of
those go the ones that no other source has sent cloves of: a path cannot evict what others carry by being the fastest.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import chain

from troth.overlay.sida.assembly import Assembly, SegmentContent
from troth.overlay.sida.clove import MOST_SEGMENT_BYTES, Clove, Threshold, parse
from troth.overlay.sida.errors import LateClove, MalformedClove
from troth.overlay.sida.gathering import BadClove

_Name = tuple[bytes, bytes]
"""Secret and message id: messages under different secrets never meet."""


@dataclass(frozen=True, slots=True)
class InboxLimits:
    """Bounds of an inbox.

    Args:
        messages: half-complete ones held at a time.
        held_bytes: what they hold together.
        seconds: a message without a new part for so long is given up.
        segment_bytes: content of one segment that is accepted.
        remembered: ids of ended messages, whose replay is refused.
        judged: ended messages whose late cloves are still checked, to name the bad.
        threshold: the only one accepted; to be set where messages come without a secret, lest a few paths that are
            not the sender choose a low k.
    """

    messages: int = 4096
    held_bytes: int = 64 << 20
    seconds: float = 60.0
    segment_bytes: int = MOST_SEGMENT_BYTES
    remembered: int = 65536
    judged: int = 256
    threshold: Threshold | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """A message that was given up: its parts before `next_number` were given out, the rest will not be."""

    message_id: bytes
    next_number: int
    why: str
    bad: tuple[BadClove, ...]


@dataclass(slots=True)
class _OpenMessage:
    assembly: Assembly
    opener: Hashable
    since: float
    charged: int = 0


@dataclass(slots=True)
class _Account:
    """What one source opened: the messages that it alone has sent cloves of, and those that others carry too."""

    held_bytes: int = 0
    alone: OrderedDict[_Name, None] = field(default_factory=OrderedDict)
    shared: OrderedDict[_Name, None] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self.alone) + len(self.shared)

    def first_to_go(self, spared: _Name) -> _Name:
        """The oldest message that others would not miss, or else the oldest, and `spared` only when it is the last."""
        return next((name for name in chain(self.alone, self.shared) if name != spared), spared)


class Inbox:
    """Reassembles messages. `lost` holds the last 1,024 that were given up, for the caller to take and report."""

    def __init__(self, limits: InboxLimits | None = None) -> None:
        self._limits = limits or InboxLimits()
        self._open: OrderedDict[_Name, _OpenMessage] = OrderedDict()
        self._accounts: dict[Hashable, _Account] = {}
        self._over: OrderedDict[_Name, None] = OrderedDict()
        self._judged: OrderedDict[_Name, Assembly] = OrderedDict()
        self.held_bytes = 0
        self.lost: deque[Lost] = deque(maxlen=1024)

    def __len__(self) -> int:
        return len(self._open)

    def accept(self, wire: bytes, source: Hashable, now: float, secret: bytes = b"") -> list[SegmentContent]:
        """Take one clove as it arrived; gives the parts that are complete and next in order.

        Args:
            wire: the clove's bytes, untrusted.
            source: the path it came by.
            now: seconds of a clock that never goes back.
            secret: the session's, or nothing.

        Raises:
            CloveRefused: with the reason in its `code`; nothing but this clove was dropped.
        """
        self.expire(now)
        clove = parse(wire, self._limits.segment_bytes)
        if self._limits.threshold not in (None, clove.segment.threshold):
            raise MalformedClove("Another threshold than the one agreed", clove.segment.threshold)
        name = (secret, clove.segment.message_id)
        if name in self._judged:
            return self._judged[name].add(clove, source)
        entry = self._open.get(name) or self._begin(name, clove, source, now)
        if source != entry.opener:
            self._share(name, self._accounts[entry.opener])
        try:
            parts = entry.assembly.add(clove, source)
        finally:
            self._charge(entry)
            self._make_room(name)
        if name in self._open and parts:
            entry.since = now
            self._open.move_to_end(name)
        if name in self._open and entry.assembly.ended:
            self._end(name)
        return parts

    def bad(self, message_id: bytes, secret: bytes = b"") -> list[BadClove]:
        """The bad cloves of a message, by index and source, while it is open or ended lately."""
        name = (secret, message_id)
        assembly = self._open[name].assembly if name in self._open else self._judged.get(name)
        return assembly.bad if assembly else []

    def expire(self, now: float) -> None:
        """Give up messages that have had no new part for `InboxLimits.seconds`."""
        while self._open:
            name, entry = next(iter(self._open.items()))
            if now - entry.since < self._limits.seconds:
                return
            self._give_up(name, "no part in time")

    def _begin(self, name: _Name, clove: Clove, source: Hashable, now: float) -> _OpenMessage:
        if name in self._over:
            raise LateClove("This message is over", clove.segment.message_id.hex())
        entry = self._open[name] = _OpenMessage(Assembly(name[0]), source, now)
        self._accounts.setdefault(source, _Account()).alone[name] = None
        return entry

    @staticmethod
    def _share(name: _Name, account: _Account) -> None:
        if name in account.alone:
            del account.alone[name]
            account.shared[name] = None

    def _charge(self, entry: _OpenMessage) -> None:
        more = entry.assembly.held_bytes - entry.charged
        entry.charged += more
        self._accounts[entry.opener].held_bytes += more
        self.held_bytes += more

    def _end(self, name: _Name) -> None:
        self._judged[name] = self._close(name).assembly
        if len(self._judged) > self._limits.judged:
            self._judged.popitem(last=False)

    def _give_up(self, name: _Name, why: str) -> None:
        assembly = self._close(name).assembly
        self.lost.append(Lost(name[1], assembly.next_number, why, tuple(assembly.bad)))

    def _close(self, name: _Name) -> _OpenMessage:
        entry = self._open.pop(name)
        account = self._accounts[entry.opener]
        account.alone.pop(name, None)
        account.shared.pop(name, None)
        account.held_bytes -= entry.charged
        self.held_bytes -= entry.charged
        if not account:
            del self._accounts[entry.opener]
        self._over[name] = None
        if len(self._over) > self._limits.remembered:
            self._over.popitem(last=False)
        return entry

    def _make_room(self, newest: _Name) -> None:
        while self.held_bytes > self._limits.held_bytes:
            heaviest = max(self._accounts.values(), key=lambda account: account.held_bytes)
            self._give_up(heaviest.first_to_go(newest), "memory is full")
        while len(self._open) > self._limits.messages:
            busiest = max(self._accounts.values(), key=len)
            self._give_up(busiest.first_to_go(newest), "memory is full")
