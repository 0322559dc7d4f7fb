"""How much one member may tell: bytes that fill up again, so that nobody keeps this node busy reading."""

from __future__ import annotations

from collections.abc import Collection

from troth.node.errors import Busy
from troth.overlay.hash_radix.codec import LARGEST_UPDATE
from troth.protocol.types import Address

EACH = 2_048
"""Bytes that any message counts beside its payload: it is checked, answered and signed."""
MOST = 2 * LARGEST_UPDATE
"""Bytes at once: a snapshot, and another one after a restart."""
PER_SECOND = 24_576
"""Bytes; to take a byte in costs about a microsecond."""


class Allowance:
    """A bucket for each member. `now` in seconds, never falling."""

    def __init__(self) -> None:
        self._left: dict[Address, tuple[float, float]] = {}

    def take(self, name: Address, payload: int, now: float) -> None:
        """A message with so many bytes of payload came; raises Busy where it is too much."""
        left, at = self._left.get(name, (float(MOST), now))
        left = min(MOST, left + (now - at) * PER_SECOND) - EACH - payload
        if left < 0:
            raise Busy("this member tells more than can be read", payload, "Tell once a second, all once in five.")
        self._left[name] = left, now

    def keep(self, names: Collection[Address]) -> None:
        """Forget all others."""
        self._left = {name: state for name, state in self._left.items() if name in names}
