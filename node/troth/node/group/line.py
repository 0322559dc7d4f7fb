"""What one member is still to be told, and when it is tried again."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Protocol

from troth.overlay.hash_radix.announcing import HEARTBEAT, INTERVAL
from troth.protocol.types import Address
from troth.protocol.wire_group import Tell, Told

LONGEST_PAUSE = 30.0
"""Seconds until a member that does not answer is tried again, unless it is heard before."""


class Words(Protocol):
    """What is to be said now."""

    def header(self) -> Tell:
        """Share and proposed lengths."""

    def heartbeat(self) -> bytes:
        """The load."""

    def whole(self) -> bytes:
        """All that was said so far."""

    def heard(self, name: Address, told: Told, seconds: float | None) -> None:
        """A member's answer; `seconds` it took, where nothing but the way took time."""


@dataclass(slots=True)
class Line:
    """One member's. `now` in seconds, never falling."""

    failures: int = 0
    _due: bytes = b""
    _whole: bool = False
    _said_whole: float = float("-inf")
    _heard: asyncio.Event = field(default_factory=asyncio.Event)

    def announce(self, update: bytes) -> None:
        """An update waits to be said; who did not get the one before gets all at once instead."""
        self._whole = self._whole or bool(self._due)
        self._due = b"" if self._whole else update

    def ask_whole(self) -> None:
        """The member misses something."""
        self._whole = True

    def content(self, words: Words, now: float) -> tuple[bytes, bool]:
        """What to say now, and whether names are in it. All at once goes out once an interval, whoever asks."""
        if self._whole and now - self._said_whole >= INTERVAL:
            self._whole, self._due, self._said_whole = False, b"", now
            return words.whole(), True
        update, self._due = self._due, b""
        return update or words.heartbeat(), bool(update)

    def wake(self) -> None:
        """The member was heard."""
        self._heard.set()

    async def pause(self) -> None:
        """Until the next word: longer after failures, but no longer than until the member is heard."""
        self._heard.clear()
        await asyncio.sleep(HEARTBEAT)
        more = min(LONGEST_PAUSE, HEARTBEAT * 2 ** min(self.failures, 32)) - HEARTBEAT
        if more > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._heard.wait(), more)
