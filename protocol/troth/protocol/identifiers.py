"""Content-addressed identifiers, exactly as the contracts compute them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

from troth.protocol import typed_data
from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32, ModelDescriptor, Segment


def _abi_struct(value: Any) -> bytes:
    """``abi.encode`` of a flat struct; raises InvalidField where a value does not fit its Solidity type.

    Packed here since eth_abi pads a short bytes32 in silence, which would give another, valid-looking identifier.
    """
    hints = get_type_hints(type(value), include_extras=True)
    types = [typed_data.solidity_type(hints[field.name]) for field in fields(value)]
    heads, tails = [], b""
    for field, name in zip(fields(value), types, strict=True):
        item = getattr(value, field.name)
        if name == "string":
            heads.append((len(types) * 32 + len(tails)).to_bytes(32))
            tails += _abi_string(item)
        else:
            heads.append(typed_data.field_encoder(name)(item))
    return b"".join(((32).to_bytes(32), *heads, tails))


def _abi_string(text: str) -> bytes:
    encoded = typed_data.encode_text(text)
    return len(encoded).to_bytes(32) + encoded + bytes(-len(encoded) % 32)


def model_id(descriptor: ModelDescriptor) -> Hash32:
    """keccak256(abi.encode(descriptor))."""
    return Hash32(keccak256(_abi_struct(descriptor)))


def group_id(execution_class: Hash32, segment: Segment) -> Hash32:
    """keccak256(abi.encode(class, first, end)): the group of nodes eligible for a segment."""
    return Hash32(keccak256(_word(execution_class) + segment.first.to_bytes(32) + segment.end.to_bytes(32)))


def _word(value: bytes) -> bytes:
    if len(value) != 32:
        raise InvalidField("A bytes32 word has exactly 32 bytes", value, "Pass the full digest.")
    return value
