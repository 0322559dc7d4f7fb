"""The clove, as it travels (PlanetServe section 3.2, "Using S-IDA"); docs/reference/sida.md has the format in full.

     0  version     1      1
     1  n           1      1 … 32
     2  k           1      1 … n
     3  index       1      0 … n−1
     4  message id  16     random, the same in every clove of a message
    20  segment     4      number from 0
    24  last        1      1 in the last segment, else 0
    25  length      4      bytes of the segment's content
    29  commitments 16 n   one to each clove's share and tag
        share       32     of the segment's key
        tag         16     over the fragment, under the segment's key
        fragment    ⌈(length + 16) / k⌉

Numbers are big-endian. Length is fixed by n, k and length, so a clove has exactly one encoding.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import lru_cache

from troth.overlay.sida.errors import ContentTooLarge, MalformedClove, WrongThreshold

VERSION = 1
MOST_PATHS = 32
MESSAGE_ID_BYTES = 16
COMMITMENT_BYTES = 16
SHARE_BYTES = 32
TAG_BYTES = 16
MOST_SEGMENT_BYTES = 1 << 20
"""Content of one segment; a receiver may allow less."""

_HEADER = struct.Struct(">BBBB16sIBI")
HEADER_BYTES = _HEADER.size
_INDEX_AT = 3
_INDEX = [bytes((index,)) for index in range(MOST_PATHS)]


@dataclass(frozen=True, slots=True)
class Threshold:
    """n cloves, any k of which give the message; raises WrongThreshold."""

    n: int
    k: int

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.n <= MOST_PATHS:
            raise WrongThreshold("S-IDA needs 1 ≤ k ≤ n ≤ 32", f"n = {self.n}, k = {self.k}", "Use (4, 3) if in doubt.")

    def fragment_bytes(self, length: int) -> int:
        """Bytes of one fragment of a segment of `length` bytes: ciphertext and its tag in k pieces."""
        return -(-(length + TAG_BYTES) // self.k)

    def clove_bytes(self, length: int) -> int:
        """Bytes of one whole clove of a segment of `length` bytes."""
        fixed = HEADER_BYTES + self.n * COMMITMENT_BYTES + SHARE_BYTES + TAG_BYTES
        return fixed + self.fragment_bytes(length)


@dataclass(frozen=True, slots=True)
class CloveSegment:
    """What all cloves of one segment say alike: threshold, message, place in it, bytes of content."""

    threshold: Threshold
    message_id: bytes
    number: int
    last: bool
    length: int

    @property
    def associated(self) -> bytes:
        """The 29 bytes before the commitments, with index 0: the associated data of the segment's encryption."""
        shape = self.threshold
        return _HEADER.pack(VERSION, shape.n, shape.k, 0, self.message_id, self.number, int(self.last), self.length)


@dataclass(frozen=True, slots=True)
class Clove:
    """One of n, untrusted until its tag was checked.

    `announced` is what all cloves of a segment have alike: the header with index 0, and the commitments.
    """

    segment: CloveSegment
    index: int
    announced: bytes
    share: bytes
    tag: bytes
    fragment: bytes

    def to_bytes(self) -> bytes:
        """The clove as it travels."""
        return b"".join((with_index(self.announced, self.index), self.share, self.tag, self.fragment))

    def keeps_its_commitment(self) -> bool:
        """Whether share and tag are those that the list in the same clove commits to."""
        at = HEADER_BYTES + self.index * COMMITMENT_BYTES
        own = self.announced[at : at + COMMITMENT_BYTES]
        return own == commitment(self.announced[:HEADER_BYTES], self.index, self.share, self.tag)


def with_index(announced: bytes, index: int) -> bytes:
    """A header, and whatever follows it, with this index in the place of 0."""
    return b"%b%c%b" % (announced[:_INDEX_AT], index, announced[_INDEX_AT + 1 :])


def commitment(associated: bytes, index: int, share: bytes, tag: bytes) -> bytes:
    """16 bytes of SHA-256: enough, since only a second preimage helps to forge another's share."""
    return hashlib.sha256(b"".join((associated, _INDEX[index], share, tag))).digest()[:COMMITMENT_BYTES]


def parse(wire: bytes, most_bytes: int = MOST_SEGMENT_BYTES) -> Clove:
    """The clove in `wire`, or MalformedClove; nothing is copied before every length is checked.

    Args:
        wire: one clove, no more and no less.
        most_bytes: content of a segment that the caller allows.
    """
    if len(wire) < HEADER_BYTES:
        raise MalformedClove(f"Fewer than the {HEADER_BYTES} bytes of a header", len(wire))
    index = wire[_INDEX_AT]
    associated = wire[:_INDEX_AT] + b"\0" + wire[_INDEX_AT + 1 : HEADER_BYTES]
    segment, wire_bytes = _announced(associated)
    n = segment.threshold.n
    if index >= n:
        raise MalformedClove(f"An index beyond n = {n}", index)
    if segment.length > most_bytes:
        raise MalformedClove(f"More than {most_bytes} bytes announced", segment.length)
    if len(wire) != wire_bytes:
        raise MalformedClove(f"A clove that announces {wire_bytes} bytes has another length", len(wire))
    share_at = HEADER_BYTES + n * COMMITMENT_BYTES
    tag_at = share_at + SHARE_BYTES
    fragment_at = tag_at + TAG_BYTES
    announced = associated + wire[HEADER_BYTES:share_at]
    return Clove(segment, index, announced, wire[share_at:tag_at], wire[tag_at:fragment_at], wire[fragment_at:])


@lru_cache(maxsize=1024)
def _announced(header: bytes) -> tuple[CloveSegment, int]:
    """What a header with index 0 says, and the length of its cloves; the cloves of a segment share the object."""
    version, n, k, _, message_id, number, last, length = _HEADER.unpack(header)
    if version != VERSION:
        raise MalformedClove("A clove of another version", version, "Both ends must run the same version.")
    if not 1 <= k <= n <= MOST_PATHS or last > 1:
        raise MalformedClove("Threshold or mark out of bounds", header.hex())
    if length > MOST_SEGMENT_BYTES:
        raise MalformedClove(f"More than {MOST_SEGMENT_BYTES} bytes announced", length)
    segment = CloveSegment(Threshold(n, k), message_id, number, bool(last), length)
    return segment, segment.threshold.clove_bytes(length)


def check_length(content: bytes) -> None:
    """Raise ContentTooLarge for more bytes than one segment carries."""
    if len(content) > MOST_SEGMENT_BYTES:
        raise ContentTooLarge(
            f"A segment carries {MOST_SEGMENT_BYTES} bytes", len(content), "Cut the message (`Sender.cut`)."
        )
