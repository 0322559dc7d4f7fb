"""The name of a chunk: 32 bits of a keyed hash over everything up to its end.

**Keyed**, with a secret of the group: 2^32 trials are minutes, so with an open hash any user could write a prompt
that takes a popular prefix's name, or two with one name. Users do not know the key; members do, and need no
collision, since they can claim what they like (the load gate bounds what that gains). **Chained**: a name stands for
the whole prefix, so that a paragraph shows only to who guesses all that stands before it. **Truncated** to 32 bits
for the wire; the chain goes on with 128. A child is looked up under its parent's name, so that two prefixes mix only
if both names collide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from troth.overlay.hash_radix.chunking import Chunking

KEY: Final = 32
"""Bytes of a group's key."""
DIGEST: Final = 16
"""Bytes that the chain carries from chunk to chunk."""
TOKEN: Final = 4
"""Bytes of a token."""
ROOT: Final = 0
"""The name that no chunk has: the parent of every first one."""

Tokens: TypeAlias = Sequence[int] | NDArray[np.uint32]
Path = Iterator[tuple[int, int]]


def packed(tokens: Tokens) -> bytes:
    """Tokens as bytes, 4 each, little-endian. Raises OverflowError for what is no token."""
    return np.asarray(tokens, dtype="<u4").tobytes()


class Naming:
    """Names under one group's key and array.

    Args:
        key: 32 secret bytes that the members of the group share; a new one ends all names.
        chunking: the group's array.
    """

    def __init__(self, key: bytes, chunking: Chunking) -> None:
        if len(key) != KEY:
            raise ValueError(f"A group's key has {KEY} bytes, not {len(key)}")
        self.chunking = chunking
        self.root = chunking.identity.ljust(DIGEST, b"\0")
        """What the chain starts with: names of different arrays have nothing in common."""
        self._keyed = hashlib.blake2b(key=key, digest_size=DIGEST, person=b"troth-hash-radix"[:16])
        self.identity = hashlib.blake2b(chunking.identity, digest_size=4, key=key, person=b"troth-naming").digest()
        """4 bytes that tell this key and array from others: updates with names of another one are not mixed in."""

    def link(self, parent: bytes, content: bytes | memoryview) -> bytes:
        """The chain's next 16 bytes: `parent` those before, `content` the chunk's packed tokens."""
        digest = self._keyed.copy()
        digest.update(parent)
        digest.update(content)
        return digest.digest()

    def path(self, tokens: bytes) -> Path:
        """(name, tokens up to its end) of each whole chunk of packed tokens, hashed only as far as it is asked for."""
        view, digest, start = memoryview(tokens), self.root, 0
        for end in self.chunking.ends(len(tokens) // TOKEN):
            digest = self.link(digest, view[start * TOKEN : end * TOKEN])
            start = end
            yield name_of(digest), end


def name_of(digest: bytes) -> int:
    """The 32-bit name of a chunk from the chain's 16 bytes; never `ROOT`."""
    return int.from_bytes(digest[:4], "little") or 1
