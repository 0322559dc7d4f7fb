"""A block's header as the bytes that its hash is of: what the Court takes as proof of a RANDAO.

A node answers with JSON. The fields are encoded again in the order of the header (yellow paper, 4.4, and later forks),
and only bytes that hash to the block's own name are believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import rlp  # type: ignore[import-untyped]

from troth.chain import decoding
from troth.chain.errors import ChainUnavailable
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32, to_hash32

HEADER_LIMIT = 4096
"""Bytes of a header; today's have about 650."""

_BYTES, _NUMBER = "bytes", "number"
_FIELDS = (
    ("parentHash", _BYTES),
    ("sha3Uncles", _BYTES),
    ("miner", _BYTES),
    ("stateRoot", _BYTES),
    ("transactionsRoot", _BYTES),
    ("receiptsRoot", _BYTES),
    ("logsBloom", _BYTES),
    ("difficulty", _NUMBER),
    ("number", _NUMBER),
    ("gasLimit", _NUMBER),
    ("gasUsed", _NUMBER),
    ("timestamp", _NUMBER),
    ("extraData", _BYTES),
    ("mixHash", _BYTES),
    ("nonce", _BYTES),
    ("baseFeePerGas", _NUMBER),
    ("withdrawalsRoot", _BYTES),
    ("blobGasUsed", _NUMBER),
    ("excessBlobGas", _NUMBER),
    ("parentBeaconBlockRoot", _BYTES),
    ("requestsHash", _BYTES),
)
_REQUIRED = 15
"""Fields that every header has; each later fork appends some, in this order."""

_PARENT, _NUMBER_FIELD, _TIME, _MIX = 0, 8, 11, 13


@dataclass(frozen=True, slots=True)
class RawHeader:
    """A header with what is read from it; ``raw`` hashes to ``hash``, so that nothing of it can be made up."""

    number: int
    hash: Hash32
    parent_hash: Hash32
    timestamp: int
    randao: Hash32
    raw: bytes


def header_of(block: Any) -> RawHeader:
    """The header of ``eth_getBlockByNumber``'s answer; ChainUnavailable if its fields do not hash to its name."""
    try:
        items = _items(block)
        expected = decoding.hash32(block["hash"])
    except (KeyError, TypeError) as error:
        raise decoding.malformed("block", block) from error
    # A fork may leave out fields that this list has, or the node may show some that are no part of the header.
    for count in range(len(items), _REQUIRED - 1, -1):
        raw: bytes = rlp.encode(items[:count])
        if keccak256(raw) == expected:
            return read_header(raw)
    raise ChainUnavailable(
        "The header's fields do not hash to the block's name",
        decoding.hexadecimal(expected),
        "Use a node whose chain has Ethereum's headers; a case cannot be drawn without one.",
    )


def read_header(raw: bytes) -> RawHeader:
    """A header from its bytes; raises ValueError if they are none."""
    if len(raw) > HEADER_LIMIT:
        raise ValueError("a header is not that long")
    try:
        items = rlp.decode(raw, strict=True)
    except (rlp.exceptions.RLPException, RecursionError) as error:
        raise ValueError("no recursive-length prefixes") from error
    if not isinstance(items, list) or len(items) < _REQUIRED or not all(isinstance(item, bytes) for item in items):
        raise ValueError("a header is a list of at least 15 strings")
    return RawHeader(
        number=int.from_bytes(items[_NUMBER_FIELD], "big"),
        hash=Hash32(keccak256(raw)),
        parent_hash=to_hash32(items[_PARENT]),
        timestamp=int.from_bytes(items[_TIME], "big"),
        randao=to_hash32(items[_MIX]),
        raw=raw,
    )


def _items(block: Mapping[str, Any]) -> list[bytes]:
    items = []
    for position, (name, form) in enumerate(_FIELDS):
        value = block.get(name)
        if value is None:
            if position < _REQUIRED:
                raise KeyError(name)
            break
        items.append(decoding.data(value) if form == _BYTES else _minimal(decoding.quantity(value)))
    return items


def _minimal(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")
