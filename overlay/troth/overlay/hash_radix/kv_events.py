"""What an engine says of its own KV cache: vLLM's BlockStored, BlockRemoved and AllBlocksCleared.

The engine's block hashes are its own integers or bytes, seeded per process: they are keys here, and never leave the
node.
Blocks that plain tokens do not name (an adapter, images, a cache salt, another medium) must not be passed on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

EngineHash: TypeAlias = int | bytes


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Consecutive blocks: `hashes` in order, `tokens` packed (all blocks together), `parent` before the first."""

    hashes: tuple[EngineHash, ...]
    parent: EngineHash | None
    tokens: bytes


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """Blocks that are gone, in any order."""

    hashes: tuple[EngineHash, ...]


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """The cache is empty."""


KvEvent: TypeAlias = BlocksStored | BlocksRemoved | AllBlocksCleared
