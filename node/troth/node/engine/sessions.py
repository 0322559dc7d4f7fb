"""The attention caches of all sessions under one memory budget.

A session that was not used for `IDLE_SECONDS` gives way, oldest first, when memory is needed; a busy one never does.
"""

from __future__ import annotations

import time
from collections import OrderedDict

from troth.node.engine.attention_cache import AttentionCache
from troth.node.engine.interface import SessionKey
from troth.node.errors import NodeBusy
from troth.protocol.types import Segment

IDLE_SECONDS = 600.0
"""A session that nobody has used for so long gives way to others."""


class CacheBudget:
    """Sessions in the order of their last use, never more than `limit` bytes together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._sessions: OrderedDict[SessionKey, tuple[AttentionCache, float]] = OrderedDict()

    @property
    def used(self) -> int:
        """Bytes held by all sessions."""
        return sum(cache.bytes for cache, _ in list(self._sessions.values()))

    @property
    def segments(self) -> set[Segment]:
        """The segments that sessions are in the middle of."""
        return {cache.segment for cache, _ in self._sessions.values()}

    def find(self, key: SessionKey) -> AttentionCache | None:
        """The session's cache, marked as just used."""
        found = self._sessions.get(key)
        if found is None:
            return None
        self._touch(key, found[0])
        return found[0]

    def make_room(self, key: SessionKey, cache: AttentionCache, positions: int) -> None:
        """Grow a session's cache to hold so many positions and remember it.

        Raises:
            NodeBusy: even without the idle sessions the budget would be exceeded; nothing changed for this session.
                What exceeds it alone makes no other session give way.
        """
        capacity = cache.capacity_for(positions)
        if (needed := cache.bytes_for(capacity)) > self.limit:
            what = f"{positions} positions need more memory for attention than this node has for all texts"
            raise NodeBusy(what, f"{needed} of {self.limit} bytes", "Choose another node; waiting does not help.")
        others = self.used - (cache.bytes if key in self._sessions else 0)
        while others + needed > self.limit:
            freed = self._evict_idle(key)
            if not freed:
                raise NodeBusy("the node's memory for attention caches is used up", None, "Retry later or elsewhere.")
            others -= freed
        cache.grow(capacity)
        self._touch(key, cache)

    def forget(self, key: SessionKey) -> None:
        """Drop one session."""
        self._sessions.pop(key, None)

    def release(self, task_id: bytes) -> None:
        """Drop all sessions of a task."""
        for key in [key for key in self._sessions if key.task_id == task_id]:
            del self._sessions[key]

    def _touch(self, key: SessionKey, cache: AttentionCache) -> None:
        self._sessions[key] = (cache, time.monotonic())
        self._sessions.move_to_end(key)

    def _evict_idle(self, spare: SessionKey) -> int:
        for key, (cache, used_at) in self._sessions.items():
            if key != spare and time.monotonic() - used_at >= IDLE_SECONDS:
                del self._sessions[key]
                return cache.bytes
        return 0
