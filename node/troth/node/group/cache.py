"""Follows what the engine's cache of prefixes holds, in the group's names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from troth.node.engine.interface import CacheEvent, Cleared, Removed, Stored, WholeEngine
from troth.protocol.types import ZERO_HASH
from troth.routing.prefixes.errors import BlocksUnusable
from troth.routing.prefixes.local_blocks import (
    AllBlocksCleared,
    BlocksRemoved,
    BlocksStored,
    Changes,
    KvEvent,
    LocalBlocks,
)
from troth.routing.prefixes.naming import Naming

log = logging.getLogger(__name__)

AGAIN_SECONDS = 5.0
"""Until an engine whose events ended is listened to again."""


class Cache:
    """One engine's cache. An engine without events, None, holds nothing that can be told.

    Args:
        naming: the group's names.
        on_change: gets each change of what is held.
    """

    def __init__(self, engine: WholeEngine | None, naming: Naming, on_change: Callable[[Changes], None]) -> None:
        self._engine = engine
        self._naming = naming
        self._on_change = on_change
        self._blocks: LocalBlocks | None = None
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """Follow until cancelled; returns where nothing can be followed."""
        while self._engine is not None:
            try:
                await self._restart(LocalBlocks(self._naming, self._engine.load.block))
                await self._follow(self._engine)
            except BlocksUnusable as error:
                log.warning("the group is told loads only: %s", error)
                self._engine = None
            except Exception as error:  # noqa: BLE001 - the node serves on, only less is known of what it holds
                log.warning("the engine's cache cannot be followed now: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)
            await self._restart(None)

    async def rename(self, naming: Naming, begin: Callable[[], None]) -> None:
        """Other names from now on: `begin` is called once, and `on_change` then gets all that is held."""
        async with self._lock:
            before = self._blocks
            after = None if before is None else await asyncio.to_thread(before.renamed, naming)
            begin()
            self._naming, self._blocks = naming, after
            held = {} if after is None else after.names
            self._on_change(Changes(stored=tuple((parent, name) for name, parent in held.items()), cleared=True))

    async def _restart(self, blocks: LocalBlocks | None) -> None:
        async with self._lock:
            self._blocks = blocks
            self._on_change(Changes(cleared=True))

    async def _follow(self, engine: WholeEngine) -> None:
        async for event in engine.events():
            async with self._lock:
                assert self._blocks is not None, "made before the engine is followed, and renamed only"
                self._on_change(self._blocks.apply(_translated(event)))
            # A queue that is not empty gives without a pause, and thousands may be in it.
            await asyncio.sleep(0)
        await asyncio.sleep(AGAIN_SECONDS)


def _translated(event: CacheEvent) -> KvEvent:
    match event:
        case Stored():
            return BlocksStored(event.blocks, None if event.parent == ZERO_HASH else event.parent, event.tokens)
        case Removed():
            return BlocksRemoved(event.blocks)
        case Cleared():
            return AllBlocksCleared()
