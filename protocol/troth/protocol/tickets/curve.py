"""BLS12-381 for tickets: signatures and names in G1, keys in G2, decoded strictly.

A point travels as 96 bytes (G1) or 192 (G2), big-endian x ‖ y, as EIP-2537 has them without the zeros between. Whatever
is decoded lies on the curve, in the subgroup of prime order, and is not zero: off it, signatures say nothing.
"""

from __future__ import annotations

import secrets

from py_arkworks_bls12381 import GT, G1Point, G2Point, Scalar

from troth.protocol.errors import ProtocolError
from troth.protocol.types import Address, address_to_bytes

ORDER = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
"""Of the subgroups; scalars are below it."""
G1_BYTES, G2_BYTES = 96, 192
TAG = b"TROTH-TICKET-V1-BLS12381G1_XMD:SHA-256_SSWU_RO_"
"""Domain separation of RFC 9380's hash to the curve; TicketCurve.sol has the same."""
COORDINATE = 48

_ZERO_G1, _ZERO_G2 = G1Point.identity(), G2Point.identity()
MINUS_G2 = -G2Point()
"""The generator of G2, negated: the other side of every check."""


class InvalidTicket(ProtocolError):
    """A point, key, share, dealing or signature that is none, or another than it must be."""


def scalar(number: int) -> Scalar:
    """A number modulo the order."""
    return Scalar.from_be_bytes((number % ORDER).to_bytes(32, "big"))


def random_scalar() -> int:
    """1 to ORDER - 1, uniform."""
    return 1 + secrets.randbelow(ORDER - 1)


def point_of(name: Address) -> G1Point:
    """What a ticket's name hashes to (RFC 9380, BLS12381G1_XMD:SHA-256_SSWU_RO_, over its 20 bytes)."""
    return G1Point.hash_to_curve(address_to_bytes(name), TAG)


def decode_point(data: bytes) -> G1Point:
    """A point of G1 from 96 bytes; raises InvalidTicket."""
    if len(data) != G1_BYTES:
        raise InvalidTicket("A point of G1 has 96 bytes", f"{len(data)} bytes", "Send x and y, 48 bytes each.")
    try:
        point = G1Point.from_xy_bytes_be(data)
    except ValueError as error:
        raise InvalidTicket("These bytes are no point of G1's subgroup", data, "Ask for another.") from error
    if point == _ZERO_G1:
        raise InvalidTicket("Zero is nobody's point", data, "Ask for another.")
    return point


def decode_key(data: bytes) -> G2Point:
    """A point of G2 from 192 bytes; raises InvalidTicket."""
    if len(data) != G2_BYTES:
        raise InvalidTicket("A point of G2 has 192 bytes", f"{len(data)} bytes", "Send x and y, 96 bytes each.")
    try:
        point = G2Point.from_xy_bytes_be(data)
    except ValueError as error:
        raise InvalidTicket("These bytes are no point of G2's subgroup", data, "Ask for another.") from error
    if point == _ZERO_G2:
        raise InvalidTicket("Zero is nobody's key", data, "Deal the key again.")
    return point


def encode_point(point: G1Point) -> bytes:
    """96 bytes."""
    encoded: bytes = bytes(point.to_xy_bytes_be())
    return encoded


def encode_key(key: G2Point) -> bytes:
    """192 bytes."""
    encoded: bytes = bytes(key.to_xy_bytes_be())
    return encoded


def padded(data: bytes) -> bytes:
    """A point as EIP-2537 takes it: 16 zero bytes before each coordinate."""
    parts = (data[at : at + COORDINATE] for at in range(0, len(data), COORDINATE))
    return b"".join(bytes(16) + part for part in parts)


def unpadded(data: bytes) -> bytes:
    """The other way; raises InvalidTicket where what is left out is not zero."""
    step = COORDINATE + 16
    parts = [data[at : at + step] for at in range(0, len(data), step)]
    if any(len(part) != step or any(part[:16]) for part in parts):
        raise InvalidTicket("A coordinate is 16 zero bytes and 48 others", len(data), "Take it from the chain.")
    return b"".join(part[16:] for part in parts)


def is_pairing(signature: G1Point, point: G1Point, key: G2Point) -> bool:
    """Whether ``signature`` is ``point`` times the secret of ``key``."""
    return bool(GT.pairing_check([signature, point], [MINUS_G2, key]))
