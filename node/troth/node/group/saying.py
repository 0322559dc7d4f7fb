"""What this node says to its group, as bytes: updates and snapshots of its cache, heartbeats with its load."""

from __future__ import annotations

import time

from troth.overlay.hash_radix.announcing import Announcer
from troth.overlay.hash_radix.codec import encode_heartbeat, encode_update
from troth.overlay.hash_radix.load import Load
from troth.overlay.hash_radix.local_blocks import Changes
from troth.overlay.hash_radix.naming import Naming

MOST_NAMES = 16_384
"""Chunks that this node tells: 2 million tokens in chunks of 128, in 150 kB at most."""


class Saying:
    """Counts epochs: each new naming begins one, later than those of any earlier start of this node."""

    def __init__(self, naming: Naming) -> None:
        self._epoch = 0
        self.rename(naming)

    def rename(self, naming: Naming) -> None:
        """Names are other ones from now on; what is held must be noted again."""
        self._epoch = max(self._epoch + 1, time.time_ns() // 1_000_000)
        self._announcer = Announcer(naming.identity, self._epoch, MOST_NAMES)
        self._whole = b""

    def note(self, changes: Changes) -> None:
        """Changes of this node's own cache."""
        self._announcer.note(changes)

    def update(self, load: Load) -> bytes:
        """What is new since the last one; after `rename` all."""
        self._whole = b""
        return encode_update(self._announcer.next_update(load))

    def whole(self, load: Load) -> bytes:
        """All that was said, for who missed something; made once between two updates, whoever asks."""
        self._whole = self._whole or encode_update(self._announcer.snapshot(load))
        return self._whole

    def heartbeat(self, load: Load) -> bytes:
        """The load alone."""
        return encode_heartbeat(self._announcer.heartbeat(load))
