"""Recursive-length prefixes (Ethereum yellow paper, appendix B), one level deep.

A transaction's own fields are all that an audit reads. Lists inside stay bytes, so that a stranger's nesting costs
neither stack nor time: a general decoder takes minutes for 300 KB of it.
"""

from __future__ import annotations

from dataclasses import dataclass

_STRING, _LIST, _SHORT = 0x80, 0xC0, 55


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
