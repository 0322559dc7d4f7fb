"""Names of chunks: where a prompt is cut (PlanetServe, appendix A3), and 32 bits of a keyed hash up to each cut.

The published array is s1, δ, s2 - s1 - δ, δ, …: one long chunk up to each common prompt's end, and a short one behind
it that tells apart what follows. We cut at the same places, with two changes. Ends are rounded down to whole cache
blocks, since no engine reuses a part of one. And no chunk is longer than `LONGEST`: a prompt whose shared part ends
inside a chunk would lose all of it, and whoever can bring the Sentries to a wrong length would choose how much that
is.

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
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from typing import Final, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from troth.routing.prefixes.errors import ChunkingUnusable

BLOCK: Final = 32
"""Tokens: the unit of every length; an engine's cache blocks divide it (vLLM: 32 on CPU, 16 on CUDA)."""
SEPARATOR: Final = BLOCK
"""δ, tokens."""
LONGEST: Final = 512
"""Tokens of a chunk at most: what a wrong array can cost a search."""
DEFAULT: Final = 128
"""Tokens of a chunk behind the array."""
MOST_LENGTHS: Final = 128
"""Entries of an array; each search pays for them."""
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


@dataclass(frozen=True, slots=True)
class Chunking:
    """A group's array: `lengths` in tokens, then chunks of `default` tokens without end. Raises ChunkingUnusable."""

    lengths: tuple[int, ...] = ()
    default: int = DEFAULT
    _ends: tuple[int, ...] = field(init=False, repr=False, compare=False)
    identity: bytes = field(init=False, repr=False, compare=False)
    """4 bytes that tell this array from others; `Naming.identity` tells the key as well."""

    def __post_init__(self) -> None:
        if len(self.lengths) > MOST_LENGTHS:
            raise ChunkingUnusable(f"A chunk-length array has at most {MOST_LENGTHS} entries", len(self.lengths))
        for length in (*self.lengths, self.default):
            if not 0 < length <= LONGEST or length % BLOCK:
                raise ChunkingUnusable(f"A chunk has 1 to {LONGEST // BLOCK} blocks of {BLOCK} tokens", length)
        ends, end = [], 0
        for length in self.lengths:
            end += length
            ends.append(end)
        content = struct.pack(f"<{len(self.lengths) + 1}I", *self.lengths, self.default)
        object.__setattr__(self, "_ends", tuple(ends))
        object.__setattr__(self, "identity", hashlib.blake2b(content, digest_size=4, person=b"troth-chunking").digest())

    def ends(self, tokens: int) -> Iterable[int]:
        """Where the chunks end that a prompt of so many tokens fills, ascending."""
        if tokens < self._arrayed:
            return self._ends[: bisect_right(self._ends, tokens)]
        return chain(self._ends, range(self._arrayed + self.default, tokens + 1, self.default))

    def span(self, token: int) -> tuple[int, int]:
        """(start, end) of the chunk that holds this token's place, counted from 0."""
        if token >= self._arrayed:
            start = token - (token - self._arrayed) % self.default
            return start, start + self.default
        place = bisect_right(self._ends, token)
        return (self._ends[place - 1] if place else 0), self._ends[place]

    @property
    def _arrayed(self) -> int:
        return self._ends[-1] if self._ends else 0


def chunking_for(common: Iterable[int], default: int = DEFAULT) -> Chunking:
    """The array that cuts at the ends of these common prompts and `SEPARATOR` behind them, in any order and unaligned.

    Lengths that do not fit in `MOST_LENGTHS` chunks any more are left out, the longest first.
    """
    cuts = {0}
    for length in common:
        end = length - length % BLOCK
        if end > 0:
            cuts |= {end, end + SEPARATOR}
    lengths: list[int] = []
    for start, end in pairwise(sorted(cuts)):
        pieces = [min(LONGEST, end - place) for place in range(start, end, LONGEST)]
        if len(lengths) + len(pieces) > MOST_LENGTHS:
            break
        lengths += pieces
    return Chunking(tuple(lengths), default)


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
