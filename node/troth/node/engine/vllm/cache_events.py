"""What vLLM's prefix cache holds, told in names that mean the same on every node.

vLLM publishes batches over ZeroMQ: topic, a big-endian sequence number, and msgpack. Its own block ids depend on its
process; here blocks are named anew from the tokens that come with the event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, NamedTuple

import msgspec

from troth.node.engine.interface import CacheEvent, Cleared, Removed, Stored
from troth.node.engine.vllm.blocks import BlockName, block_names, packed
from troth.node.errors import EngineError
from troth.protocol.types import ZERO_HASH

VllmId = int | bytes
Token = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
TOKENS_TOLD = 1 << 20
"""Tokens that one of vLLM's events may name: more than a text has."""
BLOCKS_AT_ONCE = 32
"""Blocks in one event to listeners, so that what a slow one keeps waiting is bounded in bytes too."""
QUEUE_LIMIT = 10_000
"""Events that a slow listener may be behind; then it is told `Cleared` and begins anew."""


class _BlockStored(msgspec.Struct, tag="BlockStored"):
    block_hashes: list[VllmId]
    parent_block_hash: VllmId | None
    token_ids: Annotated[list[Token], msgspec.Meta(max_length=TOKENS_TOLD)]
    block_size: Annotated[int, msgspec.Meta(ge=1)]
    extra_keys: list[Any] | None = None
    """What else than tokens a block's keys and values come from, for each block or none."""


class _BlockRemoved(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[VllmId]


class _AllBlocksCleared(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class _Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[_BlockStored | _BlockRemoved | _AllBlocksCleared]


class Translator:
    """Reads one engine's batches in order. After a gap nothing is known, so that it says `Cleared` and waits for
    blocks whose parents it knows."""

    def __init__(self) -> None:
        self._names: dict[VllmId, BlockName] = {}
        self._next: int | None = None

    def read(self, sequence: int, payload: bytes) -> list[CacheEvent]:
        """The events of one batch.

        Raises:
            EngineError: vLLM's process sent something else.
        """
        try:
            batch = msgspec.msgpack.decode(payload, type=_Batch)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise EngineError("vLLM's process sent no cache events", str(error), "Use the pinned version.") from error
        found: list[CacheEvent] = []
        if self._next is not None and sequence != self._next:
            found.append(self._clear())
        self._next = sequence + 1
        for event in batch.events:
            found += self._translate(event)
        return found

    def _translate(self, event: Any) -> list[CacheEvent]:
        if isinstance(event, _AllBlocksCleared):
            return [self._clear()]
        if isinstance(event, _BlockRemoved):
            names = [self._names.pop(block, None) for block in event.block_hashes]
            known = tuple(name for name in names if name is not None)
            return [Removed(known)] if known else []
        if any(event.extra_keys or ()):
            # A cache of its own, which serves no other text; nor do the blocks behind it, whose parent nobody knows.
            return []
        parent = ZERO_HASH if event.parent_block_hash is None else self._names.get(event.parent_block_hash)
        if parent is None:
            return []
        if len(event.token_ids) != event.block_size * len(event.block_hashes):
            # Some block among them is not kept, and vLLM does not say which: the others cannot be named.
            return []
        blocks = block_names(event.token_ids, event.block_size, parent)
        self._names.update(zip(event.block_hashes, blocks, strict=True))
        return list(_parts(parent, tuple(blocks), packed(event.token_ids)))

    def _clear(self) -> Cleared:
        self._names.clear()
        return Cleared()


def _parts(parent: BlockName, blocks: tuple[BlockName, ...], tokens: bytes) -> Iterator[Stored]:
    width = len(tokens) // max(len(blocks), 1)
    for first in range(0, len(blocks), BLOCKS_AT_ONCE):
        end = min(first + BLOCKS_AT_ONCE, len(blocks))
        yield Stored(parent, blocks[first:end], tokens[first * width : end * width])
        parent = blocks[end - 1]


class _HeldBlock(NamedTuple):
    parent: BlockName
    tokens: bytes


class Audience:
    """Everybody who listens to the events; nobody can hold up the others, and who comes late is told what is held."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[CacheEvent]] = set()
        self._held: dict[BlockName, _HeldBlock] = {}

    def tell(self, event: CacheEvent) -> None:
        """Note an event and hand it to all listeners; one that is far behind begins anew."""
        self._note(event)
        for queue in self._queues:
            if queue.qsize() < QUEUE_LIMIT:
                queue.put_nowait(event)
                continue
            while not queue.empty():
                queue.get_nowait()
            for part in self._snapshot():
                queue.put_nowait(part)

    async def listen(self) -> AsyncIterator[CacheEvent]:
        """`Cleared`, what is held now, and events from then on."""
        queue: asyncio.Queue[CacheEvent] = asyncio.Queue()
        for part in self._snapshot():
            queue.put_nowait(part)
        self._queues.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._queues.discard(queue)

    def _note(self, event: CacheEvent) -> None:
        if isinstance(event, Cleared):
            self._held.clear()
        elif isinstance(event, Removed):
            for name in event.blocks:
                self._held.pop(name, None)
        else:
            width = len(event.tokens) // max(len(event.blocks), 1)
            above = (event.parent, *event.blocks)
            for place, name in enumerate(event.blocks):
                self._held[name] = _HeldBlock(above[place], event.tokens[place * width : (place + 1) * width])

    def _snapshot(self) -> list[CacheEvent]:
        """Parents before children: a block that was stored again is younger than those behind it."""
        children: dict[BlockName, list[BlockName]] = {}
        for name, block in self._held.items():
            children.setdefault(block.parent, []).append(name)
        told: list[CacheEvent] = [Cleared()]
        pending = [parent for parent in children if parent not in self._held]
        while pending:
            parent = pending.pop()
            for name in children.get(parent, ()):
                told.append(Stored(parent, (name,), self._held[name].tokens))
                pending.append(name)
        return told
