"""Names of blocks of tokens: a chain of hashes, so that a name stands for a block and everything before it.

vLLM has names of its own; they depend on its version and settings, so that they mean nothing outside of one process.
These depend on tokens alone, which is what rows in an exact class depend on too.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from troth.protocol.hashing import keccak256
from troth.protocol.types import ZERO_HASH

BlockName = bytes


def packed(tokens: Sequence[int]) -> bytes:
    """Tokens as bytes, 4 each, little-endian; raises struct.error for what is no token."""
    return struct.pack(f"<{len(tokens)}I", *tokens)


def block_name(parent: BlockName, tokens: Sequence[int]) -> BlockName:
    """Name of the block that holds `tokens` after the block `parent`; `ZERO_HASH` is the parent of a first block."""
    return keccak256(parent + packed(tokens))


def block_names(tokens: Sequence[int], size: int, parent: BlockName = ZERO_HASH) -> list[BlockName]:
    """Names of the full blocks of `size` tokens that a text begins with; an incomplete last block has none."""
    names = []
    for start in range(0, len(tokens) - size + 1, size):
        parent = block_name(parent, tokens[start : start + size])
        names.append(parent)
    return names
