"""A node's own cache as chunks: the engine's events in, which chunk became whole or broken out.

A chunk is held while every block in it is. Engines evict block by block, may drop one in the middle of a chain, and say
nothing of its children when they store it again: so a removed block is kept in mind as long as something hangs on it.

The events are what an engine says of its own KV cache: vLLM's BlockStored, BlockRemoved and AllBlocksCleared. The
engine's block hashes are its own integers or bytes, seeded per process: they are keys here, and never leave the node.
Blocks that plain tokens do not name (an adapter, images, a cache salt, another medium) must not be passed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from troth.routing.prefixes.errors import BlocksUnusable
from troth.routing.prefixes.naming import BLOCK, ROOT, TOKEN, Naming

EngineHash: TypeAlias = int | bytes
MOST_BLOCKS = 1_048_576
"""Blocks kept in mind; more than any engine's cache has. Further ones are not announced."""


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


@dataclass(frozen=True, slots=True)
class Changes:
    """`stored`: (parent's name, name) of chunks that are whole now; `removed`: names that are not any more."""

    stored: tuple[tuple[int, int], ...] = ()
    removed: tuple[int, ...] = ()
    cleared: bool = False


@dataclass(slots=True)
class _Block:
    parent: EngineHash | None
    start: int
    tokens: bytes
    held: bool = True
    children: set[EngineHash] = field(default_factory=set)
    digest: bytes = b""
    """The chain's value, where a chunk ends with this block."""
    name: int = ROOT
    """That chunk's name."""


class LocalBlocks:
    """Folds one engine's events. Raises BlocksUnusable for blocks that do not divide `BLOCK`.

    Args:
        naming: the group's names.
        block_tokens: tokens of one of the engine's blocks.
    """

    def __init__(self, naming: Naming, block_tokens: int = BLOCK) -> None:
        if block_tokens < 1 or BLOCK % block_tokens:
            raise BlocksUnusable(
                f"The engine's cache blocks must divide {BLOCK} tokens", block_tokens, "Set its block size to 32."
            )
        self._naming, self._size = naming, block_tokens
        self._blocks: dict[EngineHash, _Block] = {}
        self._claimed: dict[int, EngineHash] = {}
        self.unplaced = 0
        """Blocks stored under a parent that was never seen (an event was lost), so that nobody can name them."""

    @property
    def names(self) -> dict[int, int]:
        """Name to parent's name of every chunk held whole, in the order in which they became so."""
        return {name: self._parent_name(self._blocks[end]) for name, end in self._claimed.items()}

    def renamed(self, naming: Naming) -> LocalBlocks:
        """The same blocks under other names. This one stays as it is, so that another thread may do it."""
        other = LocalBlocks(naming, self._size)
        # Parents come before children: a block is kept as long as something hangs on it.
        for key, block in self._blocks.items():
            placed = other._placed(key, block.parent, block.tokens)
            assert placed is not None, "its parent was placed before it"
            placed.held = block.held
        for key, block in other._blocks.items():
            if block.digest and other._whole(key):
                other._claim(key)
        return other

    def apply(self, event: KvEvent) -> Changes:
        """What this event changes for others."""
        match event:
            case BlocksStored():
                return self._store(event)
            case BlocksRemoved():
                return self._remove(event)
            case AllBlocksCleared():
                self._blocks.clear()
                self._claimed.clear()
                return Changes(cleared=True)

    def _store(self, event: BlocksStored) -> Changes:
        width = self._size * TOKEN
        if len(event.tokens) != width * len(event.hashes):
            raise BlocksUnusable(
                "The engine's event names other tokens than its blocks hold",
                f"{len(event.tokens) // TOKEN} tokens, {len(event.hashes)} blocks of {self._size}",
            )
        stored: list[tuple[int, int]] = []
        parent = event.parent
        for place, key in enumerate(event.hashes):
            block = self._placed(key, parent, event.tokens[place * width : place * width + width])
            if block is None:
                self.unplaced += len(event.hashes) - place
                break
            for end in self._ends_below(key):
                if self._blocks[end].name not in self._claimed and self._whole(end):
                    stored += self._claim(end)
            parent = key
        return Changes(stored=tuple(stored))

    def _remove(self, event: BlocksRemoved) -> Changes:
        removed: list[int] = []
        for key in event.hashes:
            block = self._blocks.get(key)
            if block is None or not block.held:
                continue
            block.held = False
            for end in self._ends_below(key):
                name = self._blocks[end].name
                if self._claimed.get(name) == end:
                    del self._claimed[name]
                    removed.append(name)
            self._forget(key)
        return Changes(removed=tuple(removed))

    def _claim(self, end: EngineHash) -> tuple[tuple[int, int], ...]:
        """(parent's name, name) of the whole chunk that this block ends; nothing if the name is claimed already."""
        block = self._blocks[end]
        name, above = block.name, self._parent_name(block)
        # Two prefixes of one node with one name: the second is kept quiet, or its end would end the first.
        if name in self._claimed or above == name:
            return ()
        self._claimed[name] = end
        return ((above, name),)

    def _placed(self, key: EngineHash, parent: EngineHash | None, tokens: bytes) -> _Block | None:
        block = self._blocks.get(key)
        if block is not None:
            block.held = True
            return block
        above = None if parent is None else self._blocks.get(parent)
        if (parent is not None and above is None) or len(self._blocks) >= MOST_BLOCKS:
            return None
        block = _Block(parent, 0 if above is None else above.start + self._size, tokens)
        self._blocks[key] = block
        if above is not None:
            above.children.add(key)
        start, end = self._naming.chunking.span(block.start)
        if block.start + self._size == end:
            run = self._chunk_blocks(block, start)
            before = None if run[0].parent is None else self._blocks[run[0].parent]
            root = self._naming.root if before is None else before.digest
            block.digest = self._naming.link(root, b"".join([part.tokens for part in run]))
            block.name = self._naming.name_of(block.digest)
        return block

    def _chunk_blocks(self, last: _Block, start: int) -> list[_Block]:
        """The blocks of the chunk that `last` ends, in order."""
        run = [last]
        while run[-1].start > start:
            parent = run[-1].parent
            assert parent is not None, "a block behind a prompt's start has a parent"
            run.append(self._blocks[parent])
        return run[::-1]

    def _whole(self, end: EngineHash) -> bool:
        block = self._blocks[end]
        start, _ = self._naming.chunking.span(block.start)
        return all(part.held for part in self._chunk_blocks(block, start))

    def _ends_below(self, key: EngineHash) -> Iterator[EngineHash]:
        """Last blocks of the chunks that this block is in: one, or one a branch."""
        pending = [key]
        while pending:
            key = pending.pop()
            block = self._blocks[key]
            if block.digest:
                yield key
            else:
                pending += block.children

    def _parent_name(self, end: _Block) -> int:
        start, _ = self._naming.chunking.span(end.start)
        first = self._chunk_blocks(end, start)[0]
        return ROOT if first.parent is None else self._blocks[first.parent].name

    def _forget(self, key: EngineHash | None) -> None:
        """Drop a block on which nothing hangs, and those above that were only kept for it."""
        while key is not None:
            block = self._blocks[key]
            if block.held or block.children:
                return
            del self._blocks[key]
            if block.parent is not None:
                self._blocks[block.parent].children.discard(key)
            key = block.parent
