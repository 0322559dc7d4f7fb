"""The words of the protocol as frozen types.

A field's annotation carries its Solidity type, so that ``typed_data`` and ``identifiers`` derive encodings from the
dataclass itself and the two cannot drift apart. Field names are the snake_case of the contract's camelCase.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, NewType

from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256

Hash32 = NewType("Hash32", bytes)
"""Exactly 32 bytes: a digest, an identifier, a salt or a seed (``bytes32``)."""

Address = NewType("Address", str)
"""An account as 42 characters with the EIP-55 checksum; encoders turn it into 20 bytes."""
ZERO_HASH = Hash32(bytes(32))
ZERO_ADDRESS = Address("0x" + "0" * 40)
SEGMENTS_LIMIT = 32
"""Segments of one order: their ends are packed into one word, a byte each."""


@dataclass(frozen=True, slots=True)
class Solidity:
    """Annotation that names the Solidity type of a field."""

    name: str


Uint8 = Annotated[int, Solidity("uint8")]
Uint16 = Annotated[int, Solidity("uint16")]
Uint32 = Annotated[int, Solidity("uint32")]
Uint64 = Annotated[int, Solidity("uint64")]
Uint96 = Annotated[int, Solidity("uint96")]


@lru_cache(maxsize=4096)
def _checksummed(raw: bytes) -> Address:
    digits = raw.hex()
    nibbles = keccak256(digits.encode("ascii")).hex()
    letters = (digit.upper() if int(nibble, 16) >= 8 else digit for digit, nibble in zip(digits, nibbles, strict=False))
    return Address("0x" + "".join(letters))


def address_from_bytes(raw: bytes) -> Address:
    """The EIP-55 form of 20 address bytes; raises InvalidField on another length."""
    if len(raw) != 20:
        raise InvalidField("An address has 20 bytes", len(raw), "Pass the 20 bytes of the account.")
    return _checksummed(bytes(raw))


@lru_cache(maxsize=4096)
def address_to_bytes(address: str) -> bytes:
    """The 20 bytes of an EIP-55 address; raises InvalidField if length, digits or checksum are wrong."""
    remedy = "Use the 0x-prefixed address with its EIP-55 checksum."
    if not isinstance(address, str) or len(address) != 42 or not address.startswith("0x"):
        raise InvalidField("An address is 0x and 40 hexadecimal digits", address, remedy)
    try:
        raw = bytes.fromhex(address[2:])
    except ValueError as error:
        raise InvalidField("An address is 0x and 40 hexadecimal digits", address, remedy) from error
    if len(raw) != 20 or _checksummed(raw) != address:
        raise InvalidField("The address fails its EIP-55 checksum", address, remedy)
    return raw


def to_address(text: str) -> Address:
    """Address from user input: all-lower or all-upper digits are checksummed, mixed case must already be right."""
    if isinstance(text, str) and len(text) == 42 and text[2:] in {text[2:].lower(), text[2:].upper()}:
        try:
            return address_from_bytes(bytes.fromhex(text[2:]))
        except ValueError as error:
            raise InvalidField("An address is 0x and 40 hexadecimal digits", text, "Correct the digits.") from error
    return address_from_bytes(address_to_bytes(text))


def to_hash32(value: bytes) -> Hash32:
    """``value`` as Hash32; raises InvalidField unless it has exactly 32 bytes."""
    if not isinstance(value, bytes) or len(value) != 32:
        raise InvalidField("A hash has exactly 32 bytes", value, "Pass the full keccak256 digest.")
    return Hash32(value)


def hash32_of(text: str) -> Hash32:
    """A hash as people write it, in 64 hexadecimal digits with or without 0x; raises InvalidField."""
    try:
        return to_hash32(bytes.fromhex(text.removeprefix("0x")))
    except (ValueError, InvalidField) as error:
        what = "This is no id: one has 0x and 64 hexadecimal digits"
        raise InvalidField(what, text[:80], "Copy the whole id.") from error


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """The layers ``[first, end)`` of one inferencer for one request; InvalidField unless first < end <= 255."""

    first: Uint8
    end: Uint8

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.end <= 255:
            raise InvalidField("A segment is [first, end) with 0 <= first < end <= 255", self, "Check the layer split.")


def segments_from_ends(ends: tuple[int, ...], layers: int) -> tuple[Segment, ...]:
    """Segments of a layer split; ``ends`` must rise strictly and finish at ``layers``."""
    if not 0 < len(ends) <= SEGMENTS_LIMIT or ends[-1] != layers:
        what = f"A split has 1 to {SEGMENTS_LIMIT} segments and ends at the model's layer count, {layers}"
        raise InvalidField(what, ends, "Check the split.")
    return tuple(Segment(first, end) for first, end in pairwise((0, *ends)))


def pack_ends(ends: tuple[int, ...]) -> Hash32:
    """Segment ends as one word; raises InvalidField for more than 32 of them or one that is no byte above 0."""
    if not 0 < len(ends) <= SEGMENTS_LIMIT or not all(0 < end <= 255 for end in ends):
        raise InvalidField("A layer split has 1 to 32 ends between 1 and 255", ends, "Use fewer or shorter segments.")
    return Hash32(bytes(ends).ljust(32, b"\0"))


def unpack_ends(packed: Hash32) -> tuple[int, ...]:
    """Segment ends of a word; raises InvalidField if an end follows a zero."""
    ends = packed.rstrip(b"\0")
    if 0 in ends:
        raise InvalidField("Segment ends have no gap", packed, "Take the word from the signed order.")
    return tuple(ends)


@dataclass(frozen=True, slots=True)
class ModelDescriptor:
    """A transformer at fixed weights; ``dtype`` 0 is float32 and 1 is bfloat16."""

    architecture: str
    layers: Uint16
    hidden_size: Uint32
    vocabulary: Uint32
    dtype: Uint8
    weights_root: Hash32


@dataclass(frozen=True, slots=True)
class Envelope:
    """Authenticates one channel frame; ``timestamp`` in Unix seconds."""

    content_hash: Hash32
    sender: Address
    recipient: Address
    nonce: Hash32
    timestamp: Uint64
