"""What clients ask members for tickets, as MessagePack: bounded, strict, and the same at both ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from troth.protocol.errors import ProtocolError
from troth.protocol.struct_kinds import prepared
from troth.protocol.tickets.curve import G1_BYTES, G2_BYTES, InvalidTicket
from troth.protocol.tickets.dealing import MAXIMUM_DENOMINATIONS, EpochKeys
from troth.protocol.tickets.purchases import MAXIMUM_COUNT, Purchase
from troth.protocol.types import Hash32, to_address

LARGEST_REQUEST = MAXIMUM_COUNT * G1_BYTES + 512
LARGEST_KEYS = MAXIMUM_DENOMINATIONS * 32 * (G2_BYTES + 8) + 4096

_Point = Annotated[bytes, msgspec.Meta(min_length=G1_BYTES, max_length=G1_BYTES)]
_KeyPoint = Annotated[bytes, msgspec.Meta(min_length=G2_BYTES, max_length=G2_BYTES)]
_Operators = Annotated[list[str], msgspec.Meta(min_length=1, max_length=32)]
_Coefficients = Annotated[list[_KeyPoint], msgspec.Meta(min_length=1, max_length=32)]
_Commitments = Annotated[list[_Coefficients], msgspec.Meta(min_length=1, max_length=MAXIMUM_DENOMINATIONS)]
_Epoch = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class _Request(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    buyer: str
    epoch: _Epoch
    denomination: Annotated[int, msgspec.Meta(ge=0, lt=MAXIMUM_DENOMINATIONS)]
    points: Annotated[list[_Point], msgspec.Meta(min_length=1, max_length=MAXIMUM_COUNT)]
    root: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class _Keys(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    epoch: _Epoch
    operators: _Operators
    commitments: _Commitments


def encode_request(purchase: Purchase, points: Sequence[bytes]) -> bytes:
    """A purchase and all of its blinded points, in their order."""
    body = _Request(purchase.buyer, purchase.epoch, purchase.denomination, list(points), purchase.root)
    return msgspec.msgpack.encode(body)


def decode_request(data: bytes) -> tuple[Purchase, tuple[bytes, ...]]:
    """What a client asks for; raises InvalidTicket. Points are not decoded yet."""
    try:
        body = msgspec.msgpack.decode(data, type=prepared(_Request))
        buyer = to_address(body.buyer)
    except (msgspec.MsgspecError, ProtocolError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidTicket("The bytes are no request for tickets", str(error), "Send a purchase's points.") from error
    purchase = Purchase(buyer, body.epoch, body.denomination, len(body.points), Hash32(body.root))
    return purchase, tuple(body.points)


def encode_keys(keys: EpochKeys) -> bytes:
    """An epoch's keys with all commitments."""
    return msgspec.msgpack.encode(_Keys(keys.epoch, list(keys.operators), [list(one) for one in keys.commitments]))


def decode_keys(data: bytes, digest: Hash32) -> EpochKeys:
    """Keys that members signed under ``digest``; raises InvalidTicket for any others."""
    try:
        body = msgspec.msgpack.decode(data, type=prepared(_Keys))
        operators = tuple(to_address(one) for one in body.operators)
    except (msgspec.MsgspecError, ProtocolError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidTicket("The bytes are no keys of an epoch", str(error), "Ask another member.") from error
    keys = EpochKeys(body.epoch, operators, tuple(tuple(one) for one in body.commitments))
    if keys.digest != digest:
        raise InvalidTicket("These keys are not those that the chain names", keys.digest, "Ask another member.")
    return keys


def decode_parts(data: bytes, count: int) -> tuple[bytes, ...]:
    """A member's parts of as many signatures, 96 bytes each; raises InvalidTicket for another number."""
    if len(data) != count * G1_BYTES:
        what = f"A member answers {count} points with {count * G1_BYTES} bytes"
        raise InvalidTicket(what, len(data), "Leave it out.")
    return tuple(data[at : at + G1_BYTES] for at in range(0, len(data), G1_BYTES))
