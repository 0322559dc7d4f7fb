"""Prompts, events and updates for tests of the Hash-Radix tree."""

from __future__ import annotations

from collections.abc import Sequence

from troth.routing.prefixes.local_blocks import BlocksStored
from troth.routing.prefixes.naming import BLOCK, TOKEN, Chunking, Naming, packed
from troth.routing.prefixes.update import NodeLoad
from troth.routing.prefixes.view import GroupView

KEY = bytes(range(32))
IDLE = NodeLoad(latency=1.0, capacity=8, pace=0.001)


def words(blocks: Sequence[int]) -> bytes:
    """A prompt of whole blocks, each of one repeated token."""
    return packed([token for token in blocks for _ in range(BLOCK)])


def stored(blocks: Sequence[int], start: int = 0) -> BlocksStored:
    """An engine's event for the blocks of `words(blocks)` from `start` on; a block's hash stands for all before it."""
    hashes = tuple(hash(tuple(blocks[: end + 1])) for end in range(len(blocks)))
    return BlocksStored(hashes[start:], hashes[start - 1] if start else None, words(blocks)[start * BLOCK * TOKEN :])


def naming(*lengths: int, default: int = BLOCK) -> Naming:
    """Names under the tests' key and these chunk lengths."""
    return Naming(KEY, Chunking(lengths, default))


def view_of(names: Sequence[str], group: Naming, now: float = 0.0) -> GroupView:
    """A view with these members, alive and idle."""
    view = GroupView(group)
    view.list_members(dict.fromkeys(names, 1.0), now)
    for name in names:
        view.hear(name, IDLE, now)
    return view
