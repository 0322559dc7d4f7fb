"""Which node served a prompt that began like this one, so that a conversation enters where its beginning is in a cache.

A beginning is known by keyed hashes of its blocks of tokens, each over all before it. No token is kept, and the key
ends with the process.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from troth.protocol.types import Address

BLOCK = 32
"""Tokens; caches hold whole blocks alone."""
MOST_KEPT = 65_536
KEPT_SECONDS = 3600.0
"""A cache that nobody has asked for an hour has made room for others."""


class Prefixes:
    """A bounded memory; what was remembered longest ago goes first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MOST_KEPT) -> None:
        self._clock = clock
        self._most = most
        self._key = secrets.token_bytes(32)
        self._kept: OrderedDict[bytes, tuple[Address, float]] = OrderedDict()

    def near(self, tokens: Sequence[int]) -> Address | None:
        """The node that served the longest beginning of these tokens; None if that is not known."""
        now, found = self._clock(), None
        for digest in self._digests(tokens):
            kept = self._kept.get(digest)
            if kept is not None and kept[1] > now:
                found = kept[0]
        return found

    def remember(self, tokens: Sequence[int], node: Address) -> None:
        """This node has these tokens, prompt and answer, in its cache."""
        for digest in self._digests(tokens):
            self._kept.pop(digest, None)
            self._kept[digest] = (node, self._clock() + KEPT_SECONDS)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def forget(self, node: Address) -> None:
        """It failed: nothing enters there for what it served before."""
        for digest in [digest for digest, (kept, _) in self._kept.items() if kept == node]:
            del self._kept[digest]

    def __len__(self) -> int:
        return len(self._kept)

    def _digests(self, tokens: Sequence[int]) -> Iterator[bytes]:
        before = b""
        for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
            block = b"".join(token.to_bytes(4) for token in tokens[start : start + BLOCK])
            before = hashlib.blake2b(before + block, digest_size=16, key=self._key).digest()
            yield before
