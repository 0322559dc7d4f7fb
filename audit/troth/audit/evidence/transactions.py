"""Signed transactions as bytes: an input is believed because it hashes to the transaction that a log names.

EIP-155 and older (type 0), EIP-2930 (1), EIP-1559 (2) and EIP-7702 (4) are rebuilt from a node's JSON. Others, such as
a rollup's own deposits, carry no signature that could be checked and count as not available.

Recursive-length prefixes (Ethereum yellow paper, appendix B) are read one level deep, since a transaction's own fields
are all that an audit needs. Lists inside stay bytes, so that a stranger's nesting costs neither stack nor time: a
general decoder takes minutes for 300 KB of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import rlp  # type: ignore[import-untyped]

from troth.chain import decoding
from troth.protocol.hashing import keccak256
from troth.protocol.typed_data import recover_digest
from troth.protocol.types import Address, Hash32, address_from_bytes

_STRING, _LIST, _SHORT = 0x80, 0xC0, 55
SIZE_LIMIT = 2**21
"""Bytes of one transaction; nodes refuse to pass on more than 128 KiB."""
FIRST_CHAIN_PARITY = 35
"""EIP-155: v is this, plus twice the chain id, plus the parity."""
_Field = tuple[str, str]
_SIGNATURE: tuple[_Field, ...] = (("yParity", "number"), ("r", "number"), ("s", "number"))
_BODY: tuple[_Field, ...] = (("gas", "number"), ("to", "bytes"), ("value", "number"), ("input", "bytes"))
_DYNAMIC: tuple[_Field, ...] = (
    ("chainId", "number"),
    ("nonce", "number"),
    ("maxPriorityFeePerGas", "number"),
    ("maxFeePerGas", "number"),
    *_BODY,
    ("accessList", "access"),
)
_FIELDS: Mapping[int, tuple[_Field, ...]] = {
    0: (("nonce", "number"), ("gasPrice", "number"), *_BODY, ("v", "number"), ("r", "number"), ("s", "number")),
    1: (
        *(("chainId", "number"), ("nonce", "number"), ("gasPrice", "number"), *_BODY, ("accessList", "access")),
        *_SIGNATURE,
    ),
    2: (*_DYNAMIC, *_SIGNATURE),
    4: (*_DYNAMIC, ("authorizationList", "authorizations"), *_SIGNATURE),
}


@dataclass(frozen=True, slots=True)
class Item:
    """``content`` without its prefix, ``encoded`` with it."""

    content: bytes
    encoded: bytes


def list_items(data: bytes) -> list[Item]:
    """The items of the list that ``data`` is, whole; raises ValueError for anything else."""
    if not data or data[0] < _LIST:
        raise ValueError("no list")
    start, end = _span(data, 0)
    if end != len(data):
        raise ValueError("the list ends before or after its bytes")
    items = []
    while start < end:
        first, after = _span(data, start)
        if after > end:
            raise ValueError("an item ends outside its list")
        items.append(Item(data[first:after], data[start:after]))
        start = after
    return items


def _span(data: bytes, start: int) -> tuple[int, int]:
    """Where the content of the item at ``start`` begins and ends."""
    prefix = data[start]
    if prefix < _STRING:
        return start, start + 1
    length = prefix - (_LIST if prefix >= _LIST else _STRING)
    if length <= _SHORT:
        return start + 1, start + 1 + length
    first = start + 1 + length - _SHORT
    return first, first + int.from_bytes(data[start + 1 : first], "big")


def encode_number(number: int) -> bytes:
    """A number of at most 55 bytes: big-endian without leading zeros."""
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return raw if len(raw) == 1 and raw[0] < _STRING else bytes((_STRING + len(raw),)) + raw


def encode_list(encoded: bytes) -> bytes:
    """The list of items that are encoded already."""
    if len(encoded) <= _SHORT:
        return bytes((_LIST + len(encoded),)) + encoded
    size = len(encoded).to_bytes((len(encoded).bit_length() + 7) // 8, "big")
    return bytes((_LIST + _SHORT + len(size),)) + size + encoded


def from_node(answer: Mapping[str, Any]) -> Transaction | None:
    """The transaction of ``eth_getTransactionByHash``; None if its type or bytes cannot be rebuilt from it."""
    kind = decoding.quantity(answer.get("type", "0x0"))
    fields = _FIELDS.get(kind)
    if fields is None:
        return None
    try:
        payload = rlp.encode([_encoded(answer, name, form) for name, form in fields])
    except (KeyError, TypeError):
        return None
    raw = payload if kind == 0 else bytes((kind,)) + payload
    return read_raw(raw, decoding.hash32(answer.get("hash")))


def read_raw(raw: bytes, expected: Hash32) -> Transaction | None:
    """The transaction of signed bytes; None if they are not those of the hash ``expected`` or cannot be read."""
    if not 0 < len(raw) <= SIZE_LIMIT or keccak256(raw) != expected:
        return None
    kind, payload = (raw[0], raw[1:]) if raw[0] < 0x80 else (0, raw)
    try:
        items = list_items(payload)
        fields = dict(zip((name for name, _ in _FIELDS[kind]), items, strict=True))
        receiver = address_from_bytes(fields["to"].content) if fields["to"].content else None
        sender = recover_digest(*_signed(kind, items))
    except (ValueError, KeyError, OverflowError):
        return None
    return Transaction(expected, sender, receiver, fields["input"].content, raw)


def _signed(kind: int, items: list[Item]) -> tuple[Hash32, bytes]:
    """The digest that the sender signed, and its signature as r, s, v."""
    body, (parity, *numbers) = items[:-3], (int.from_bytes(item.content, "big") for item in items[-3:])
    encoded = b"".join(item.encoded for item in body)
    if kind == 0 and parity >= FIRST_CHAIN_PARITY:
        chain, parity = divmod(parity - FIRST_CHAIN_PARITY, 2)
        encoded += encode_number(chain) + encode_number(0) * 2
    elif kind == 0:
        parity -= 27
    message = encode_list(encoded)
    digest = keccak256(message if kind == 0 else bytes((kind,)) + message)
    return Hash32(digest), b"".join(number.to_bytes(32, "big") for number in numbers) + bytes((27 + parity,))


def _encoded(answer: Mapping[str, Any], name: str, form: str) -> Any:
    value = answer.get(name)
    if form == "number":
        number = decoding.quantity(answer[name])
        return number.to_bytes((number.bit_length() + 7) // 8, "big")
    if form == "access":
        return [
            [decoding.data(entry["address"]), [decoding.data(key) for key in entry["storageKeys"]]]
            for entry in value or []
        ]
    if form == "authorizations":
        return [_authorization(entry) for entry in answer[name]]
    return decoding.data(value) if value is not None else b""


def _authorization(entry: Mapping[str, Any]) -> list[Any]:
    numbers = [_encoded(entry, name, "number") for name in ("chainId", "nonce", "yParity", "r", "s")]
    return [numbers[0], decoding.data(entry["address"]), *numbers[1:]]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A signed transaction: ``raw`` hashes to ``hash``, so sender, receiver and input are what the chain executed."""

    hash: Hash32
    sender: Address
    receiver: Address | None
    data: bytes
    raw: bytes
