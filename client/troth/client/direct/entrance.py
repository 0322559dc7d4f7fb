"""Where orders enter in direct mode: at a node of the model, for its cache's sake the one that served the beginning.

Nothing that a node passes on is believed more than if its scheduler had said it, and what it does not pass on is asked
of the scheduler itself.

The client remembers which node served which beginning of a prompt, so that a conversation enters where its beginning is
in a cache. A beginning is known by keyed hashes of its blocks of tokens, each over all before it. No token is kept, and
the key ends with the process.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

from troth.client.direct.nodes import NodeChoice
from troth.client.direct.ways import SchedulerWays
from troth.client.errors import OverlayFailed
from troth.client.orders.calls import MarketCalls
from troth.protocol.types import Address, Hash32
from troth.transport.errors import OverlayError

BLOCK = 32
"""Tokens; caches hold whole blocks alone."""
MOST_KEPT = 65_536
KEPT_SECONDS = 3600.0
"""A cache that nobody has asked for an hour has made room for others."""
MOST_ORDERS = 4096


class Prefixes:
    """A bounded memory; what was remembered longest ago goes first."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._kept: OrderedDict[bytes, tuple[Address, float]] = OrderedDict()

    def near(self, tokens: Sequence[int]) -> Address | None:
        """The node that served the longest beginning of these tokens; None if that is not known."""
        now, found = time.monotonic(), None
        for digest in self._digests(tokens):
            kept = self._kept.get(digest)
            if kept is not None and kept[1] > now:
                found = kept[0]
        return found

    def remember(self, tokens: Sequence[int], node: Address) -> None:
        """This node has these tokens, prompt and answer, in its cache."""
        for digest in self._digests(tokens):
            self._kept.pop(digest, None)
            self._kept[digest] = (node, time.monotonic() + KEPT_SECONDS)
        while len(self._kept) > MOST_KEPT:
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


class Entrance:
    """Chooses nodes, and remembers where each order entered, so that its check goes the same way."""

    def __init__(self, choice: NodeChoice, ways: SchedulerWays) -> None:
        self._choice = choice
        self._ways = ways
        self._prefixes = Prefixes()
        self._entered: OrderedDict[Hash32, Address] = OrderedDict()

    def enter(self, order: Hash32, wanted: Hash32, prompt: Sequence[int]) -> Address | None:
        """The node at which an order of a class enters; None where no node may be tried."""
        node = self._choice.one(wanted, self._prefixes.near(prompt))
        if node is not None:
            self._entered[order] = node
            while len(self._entered) > MOST_ORDERS:
                self._entered.popitem(last=False)
        return node

    def entered(self, order: Hash32) -> Address | None:
        """Where an order entered, as long as nothing was amiss there."""
        return self._entered.get(order)

    def served(self, tokens: Sequence[int], node: Address) -> None:
        """A node has this prompt with its answer in its cache."""
        self._prefixes.remember(tokens, node)

    def failed(self, order: Hash32, node: Address) -> None:
        """A node was silent, or said what is not so: the order goes on at its scheduler."""
        self.leave(order)
        self._choice.failed(node)
        self._prefixes.forget(node)

    def leave(self, order: Hash32) -> None:
        """The order goes on at its scheduler, and nobody is to blame."""
        self._entered.pop(order, None)

    @asynccontextmanager
    async def way(self, scheduler: Address, node: Address) -> AsyncIterator[MarketCalls]:
        """A scheduler's interface through a node; raises OverlayFailed where no way can be made."""
        try:
            async with self._ways.to(scheduler, node) as calls:
                yield calls
        except OverlayError as error:
            raise OverlayFailed(error.what, error.value, error.remedy, hop="node", delivered="unknown") from error
