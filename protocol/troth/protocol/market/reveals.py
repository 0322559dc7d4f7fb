"""What the reviewers of a case show, packed one behind the other (library Reveals).

A reveal is its opinion (1 byte; behind 0, nothing shown, nothing follows), score (4), spread (4), salt (16) and root
(32; left out where the opinion's highest bit is set: it is the last one before it). In a tolerant class, where the
opinion is ACCEPT or REJECT, follow the mask (1), the sampled tiles (512 each), XORed with those that the mask names,
and their siblings (32 each, from the bottom, tile by tile). Who agrees with another has nearly the same tiles, and
zeros are cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from troth.protocol.market.errors import InvalidCase
from troth.protocol.market.proceedings import Reveal
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import Rules
from troth.protocol.tensors import Dtype
from troth.protocol.trace import TILE_BYTES, depth_of, tile_count
from troth.protocol.types import ZERO_HASH, Hash32

REPEATED = 0x80
"""In the byte of an opinion: the root is the last one before it."""
NODE, CLEAR = 254, 255
"""Masks that are no reviewer's place: the node's tiles, and none."""
_TOLD = frozenset({Opinion.ACCEPT, Opinion.REJECT})
_WORD = 32
SALT_BYTES = 16
"""Of a reveal's salt that are not zero: nobody tries 2^128 of them."""
_REMEDY = "Take the reveals as the Court's decide was given them."


@dataclass(frozen=True, slots=True)
class Sample:
    """How much of a trace is opened; no tiles in an exact class."""

    tiles: int = 0
    depth: int = 0

    @classmethod
    def of(cls, rules: Rules, rows: int) -> Sample:
        """What a case's parties open: all tiles of a trace that has fewer than the class samples."""
        if rules.exact:
            return cls()
        count = tile_count(rows, rules.hidden_size, Dtype(rules.dtype))
        return cls(min(count, rules.tiles), depth_of(count))


def encode(reveals: Sequence[Reveal], node_tiles: bytes = b"") -> bytes:
    """The reveals of a case, each masked by whose tiles make its calldata cheapest."""
    packed, last = bytearray(), ZERO_HASH
    known = {NODE: node_tiles} if node_tiles else {}
    for place, reveal in enumerate(reveals):
        if reveal.opinion == Opinion.NONE:
            packed.append(0)
            continue
        repeated = reveal.root == last
        packed.append(reveal.opinion | REPEATED * repeated)
        packed += reveal.score.to_bytes(4) + reveal.spread.to_bytes(4) + _salt_of(reveal)
        packed += b"" if repeated else reveal.root
        last = reveal.root
        if reveal.tiles:
            mask, tiles = _masked(reveal.tiles, known)
            packed += bytes([mask]) + tiles + b"".join(reveal.siblings)
            known[place] = reveal.tiles
    return bytes(packed)


def salt_of(chance: bytes) -> Hash32:
    """A reveal's salt: the first ``SALT_BYTES`` of ``chance``, and zeros."""
    return Hash32(chance[:SALT_BYTES].ljust(_WORD, b"\0"))


def is_short(salt: Hash32) -> bool:
    """Whether a reveal with this salt can be packed."""
    return salt == salt_of(salt)


def _salt_of(reveal: Reveal) -> bytes:
    if not is_short(reveal.salt):
        raise InvalidCase(f"A reveal's salt has {SALT_BYTES} bytes, and zeros", reveal.salt, "Leave the reveal out.")
    return reveal.salt[:SALT_BYTES]


def _masked(tiles: bytes, known: dict[int, bytes]) -> tuple[int, bytes]:
    """The cheapest mask: whose tiles leave most zeros."""
    choices = {CLEAR: tiles} | {mask: mask_tiles(tiles, other) for mask, other in known.items()}
    best = max(choices, key=lambda mask: choices[mask].count(0))
    return best, choices[best]


def decode(packed: bytes, count: int, sample: Sample, node_tiles: bytes = b"") -> tuple[Reveal, ...]:
    """The reveals of ``count`` reviewers, their tiles in the clear; raises InvalidCase for other bytes."""
    reader, known = _Reader(packed), {NODE: node_tiles} if node_tiles else {}
    reveals: list[Reveal] = []
    for place in range(count):
        reveal = _read(reader, sample, known)
        reveals.append(reveal)
        if reveal.tiles:
            known[place] = reveal.tiles
    if reader.position != len(packed):
        raise InvalidCase("Bytes follow the last reveal", len(packed) - reader.position, _REMEDY)
    return tuple(reveals)


@dataclass(slots=True)
class _Reader:
    packed: bytes
    position: int = 0
    root: Hash32 = ZERO_HASH

    def take(self, length: int) -> bytes:
        part = self.packed[self.position : self.position + length]
        if len(part) != length:
            raise InvalidCase("The reveals end before their last one", len(self.packed), _REMEDY)
        self.position += length
        return part


def _read(reader: _Reader, sample: Sample, known: dict[int, bytes]) -> Reveal:
    first = reader.take(1)[0]
    opinion = first & ~REPEATED
    if opinion == Opinion.NONE:
        return Reveal()
    score, spread = int.from_bytes(reader.take(4)), int.from_bytes(reader.take(4))
    salt = salt_of(reader.take(SALT_BYTES))
    if not first & REPEATED:
        reader.root = Hash32(reader.take(_WORD))
    tiles: bytes = b""
    siblings: tuple[Hash32, ...] = ()
    if sample.tiles and opinion in _TOLD:
        tiles = _unmasked(reader.take(1)[0], reader.take(sample.tiles * TILE_BYTES), known)
        siblings = tuple(Hash32(reader.take(_WORD)) for _ in range(sample.tiles * sample.depth))
    return Reveal(reader.root, opinion, score, spread, salt, tiles, siblings)


def _unmasked(mask: int, tiles: bytes, known: dict[int, bytes]) -> bytes:
    if mask == CLEAR:
        return tiles
    if mask not in known:
        raise InvalidCase("No tiles stand before this reveal that could be its mask", mask, _REMEDY)
    return mask_tiles(tiles, known[mask])


def mask_tiles(tiles: bytes, known: bytes) -> bytes:
    """Tiles XORed with known ones of the same place, whose mostly zero bytes are cheap calldata; its own inverse."""
    if len(tiles) != len(known):
        raise InvalidCase("Tiles of two parties have one length", (len(tiles), len(known)), _REMEDY)
    return (int.from_bytes(tiles, "big") ^ int.from_bytes(known, "big")).to_bytes(len(tiles), "big")
