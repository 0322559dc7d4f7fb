"""What a node will say next: its changes netted out between two updates, and snapshots for who missed one."""

from __future__ import annotations

from itertools import islice

from troth.routing.prefixes.local_blocks import Changes
from troth.routing.prefixes.update import LONGEST_RUN, MOST_NAMES, Heartbeat, NodeLoad, Update, runs_of

INTERVAL = 5.0
"""Seconds between updates (section 5.1)."""
HEARTBEAT = 1.0
"""Seconds between words about the load alone."""
BURST = 4
"""Requests taken since the last word that are told before their time: others must see it while they still deal."""
SOONEST = 0.1
"""Seconds from one word to the next at least."""


class Announcer:
    """One node's side of the synchronisation. What comes and goes between two updates is never sent.

    Args:
        chunking: identity of the group's names, `Naming.identity`.
        epoch: milliseconds since 1970 when the node started; later than that of any earlier start.
        most: names that it announces; of more, the earliest (a group's members keep no more of one node).
    """

    def __init__(self, chunking: bytes, epoch: int, most: int = MOST_NAMES) -> None:
        self._chunking, self._epoch, self._most = chunking, epoch, most
        self._sequence = self._heartbeats = 0
        self._held: dict[int, int] = {}
        self._said: dict[int, int] = {}
        self._stored: dict[int, int] = {}
        self._removed: set[int] = set()

    def note(self, changes: Changes) -> None:
        """Take changes of the node's own cache in."""
        if changes.cleared:
            self._removed |= self._said.keys()
            self._held.clear()
            self._stored.clear()
        for name in changes.removed:
            self._held.pop(name, None)
            if self._stored.pop(name, None) is None and name in self._said:
                self._removed.add(name)
        for parent, name in changes.stored:
            self._held[name] = parent
            if name in self._said and self._said[name] == parent:
                self._removed.discard(name)
            else:
                self._stored[name] = parent

    def next_update(self, load: NodeLoad) -> Update:
        """The delta since the last one; a snapshot where that is shorter, and as the first word."""
        stored, removed = self._due()
        if self._sequence == 0 or len(stored) + len(removed) > max(len(self._held), 1):
            self._said = dict(islice(self._held.items(), self._most))
            self._stored = dict(islice(self._held.items(), self._most, None))
            self._removed.clear()
            return self._numbered(True, load, self._said, ())
        for name in removed:
            del self._said[name]
        self._said |= stored
        for name in stored:
            del self._stored[name]
        self._removed.clear()
        return self._numbered(False, load, stored, tuple(removed))

    def snapshot(self, load: NodeLoad) -> Update:
        """All that was said so far, under the number of the last update: for who missed one."""
        return Update(True, self._chunking, self._epoch, max(1, self._sequence), load, runs_of(self._said, LONGEST_RUN))

    def heartbeat(self, load: NodeLoad) -> Heartbeat:
        """The load alone, under the number of the last update, so that who missed that one notices."""
        self._heartbeats += 1
        return Heartbeat(self._chunking, self._epoch, self._sequence, self._heartbeats, load)

    def _due(self) -> tuple[dict[int, int], list[int]]:
        """What the next delta stores, as far as the room goes, and removes."""
        # A name that now stands under another parent was removed in between; it is said again an update later.
        moved = self._stored.keys() & self._removed
        room = self._most - len(self._said) + len(self._removed)
        free = (item for item in self._stored.items() if item[0] not in moved)
        removed = sorted(self._removed)[:MOST_NAMES]
        return dict(islice(free, max(0, min(room, MOST_NAMES - len(removed))))), removed

    def _numbered(self, whole: bool, load: NodeLoad, stored: dict[int, int], removed: tuple[int, ...]) -> Update:
        self._sequence += 1
        return Update(whole, self._chunking, self._epoch, self._sequence, load, runs_of(stored, LONGEST_RUN), removed)
