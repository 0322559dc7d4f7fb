"""Which node served a conversation's last turn, so that the next one enters where its beginning is in a cache.

A conversation is known by a keyed hash of its messages so far; no message is kept, and the key ends with the process.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from troth.client.template import Message
from troth.protocol.types import Address

MOST_KEPT = 4096
KEPT_SECONDS = 3600.0
"""A cache that nobody has asked for an hour has made room for others."""


class Affinity:
    """A bounded memory; the conversation that was remembered longest ago goes first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MOST_KEPT) -> None:
        self._clock = clock
        self._most = most
        self._key = secrets.token_bytes(32)
        self._kept: OrderedDict[bytes, tuple[Address, float]] = OrderedDict()

    def near(self, messages: Sequence[Message]) -> Address | None:
        """The node that answered the longest beginning of this conversation; None if that is not known."""
        self._drop_old()
        found = None
        for message, digest in zip(messages, self._digests(messages), strict=True):
            if message["role"] == "assistant" and digest in self._kept:
                found = self._kept[digest][0]
        return found

    def remember(self, messages: Sequence[Message], answer: str, node: Address) -> None:
        """This node gave this answer to this conversation."""
        *_, digest = self._digests([*messages, {"role": "assistant", "content": answer}])
        self._kept.pop(digest, None)
        self._kept[digest] = (node, self._clock() + KEPT_SECONDS)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def forget(self, node: Address) -> None:
        """It failed: no conversation enters there for what it served before."""
        for digest in [digest for digest, (kept, _) in self._kept.items() if kept == node]:
            del self._kept[digest]

    def __len__(self) -> int:
        return len(self._kept)

    def _drop_old(self) -> None:
        now = self._clock()
        while self._kept and next(iter(self._kept.values()))[1] <= now:
            self._kept.popitem(last=False)

    def _digests(self, messages: Sequence[Message]) -> Iterator[bytes]:
        """One after each message, over all up to it."""
        before = b""
        for message in messages:
            role = message["role"].encode()
            # Programs send answers back without the blanks around them.
            content = message["content"].strip().encode()
            hashed = hashlib.blake2b(before + len(role).to_bytes(4) + role + content, digest_size=32, key=self._key)
            before = hashed.digest()
            yield before
