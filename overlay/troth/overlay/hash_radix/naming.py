"""The name of a chunk: 32 bits of a keyed hash over everything up to its end.

**Keyed**, with a secret of the group: 2^32 trials are minutes, so with an open hash any user could write a prompt
that takes a popular prefix's name, or two with one name. Users do not know the key; members do, and need no
collision, since they can claim what they like (the load gate bounds what that gains). **Chained**: a name stands for
the whole prefix, so that a paragraph shows only to who guesses all that stands before it. **Truncated** to 32 bits
for the wire; the chain goes on with 128. A child is looked up under its parent's name, so that two prefixes mix only
if both names collide.

    state(i) = AES-GCM's tag over chunk i, under the first key, with the first 12 bytes of state(i-1) as its nonce
    name(i)  = the first 4 bytes of AES, under the second key, of state(i)

A tag is GHASH of the chunk, a universal hash as the paper asks for, plus AES of the nonce. Two prefixes of a prompt of
2^20 tokens have one state with a chance below 2^-80 for who does not know the keys, and states are seen by nobody:
a nonce comes again with another chunk, which would give GHASH's key away to who sees tags, so a second cipher stands
before them. BLAKE2b over all tokens took twice as long, which was nearly all of a search.
Who knows the keys can write two prompts with all names alike: a prompt that is forwarded for the other's sake is
computed once more at each node where the other was, and is there from then on.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from troth.overlay.hash_radix.chunking import Chunking

KEY: Final = 32
"""Bytes of a group's key."""
DIGEST: Final = 16
"""Bytes that the chain carries from chunk to chunk."""
_NONCE: Final = 12
_BATCH: Final = 64
"""Chunks hashed at once: a search that ends at a prompt's first chunk has not hashed all of a long one."""
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
        self.identity = hashlib.blake2b(chunking.identity, digest_size=4, key=key, person=b"troth-naming").digest()
        """4 bytes that tell this key and array from others: updates with names of another one are not mixed in."""
        self._tag = AESGCM(_derived(key, b"troth-radix-tag")).encrypt
        # Single blocks, no two alike but by chance: what a mode would add is not needed.
        self._encrypt = Cipher(algorithms.AES(_derived(key, b"troth-radix-name")), modes.ECB()).encryptor().update  # noqa: S305

    def link(self, parent: bytes, content: bytes | memoryview) -> bytes:
        """The chain's next 16 bytes: `parent` those before, `content` the chunk's packed tokens."""
        return self._tag(parent[:_NONCE], b"", content)

    def name_of(self, state: bytes) -> int:
        """The 32-bit name of a chunk from the chain's 16 bytes; never `ROOT`."""
        return self._names(state)[0]

    def path(self, tokens: bytes) -> Path:
        """(name, tokens up to its end) of each whole chunk of packed tokens."""
        view, tag, state, start = memoryview(tokens), self._tag, self.root, 0
        ends = iter(self.chunking.ends(len(tokens) // TOKEN))
        while batch := list(islice(ends, _BATCH)):
            states = []
            for end in batch:
                state = tag(state[:_NONCE], b"", view[start : end * TOKEN])
                states.append(state)
                start = end * TOKEN
            yield from zip(self._names(b"".join(states)), batch, strict=True)

    def _names(self, states: bytes) -> list[int]:
        return [name or 1 for name in struct.unpack("<" + "I12x" * (len(states) // DIGEST), self._encrypt(states))]


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(key=key, digest_size=DIGEST, person=purpose).digest()
