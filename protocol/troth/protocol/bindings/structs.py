"""Between frozen dataclasses and the nested tuples of the ABI codec.

A dataclass lists its fields in the order of the Solidity struct; ``tests/contracts/test_bindings_drift.py`` holds
names and order against the ABI.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from eth_abi import decode, encode
from eth_abi.codec import ABICodec
from eth_abi.decoding import StringDecoder
from eth_abi.exceptions import DecodingError, EncodingError
from eth_abi.registry import registry

from troth.protocol.bindings import Parameter
from troth.protocol.errors import InvalidField
from troth.protocol.types import Address, address_from_bytes

Struct = TypeVar("Struct")
Converter = Callable[[Any], Any]


def to_abi(value: object) -> object:
    """``value`` as the codec takes it: a dataclass becomes the tuple of its fields, an enum its number."""
    if is_dataclass(value):
        return tuple(to_abi(getattr(value, name)) for name in field_names(type(value)))
    if isinstance(value, (tuple, list)):
        return [to_abi(item) for item in value]
    return int(value) if isinstance(value, IntEnum) else value


def from_abi(kind: type[Struct], values: Sequence[object]) -> Struct:
    """The dataclass ``kind`` from the decoded fields of its struct."""
    hashable: Any = kind
    converters = _converters(hashable)
    if len(values) != len(converters):
        raise InvalidField(f"{kind.__name__} has {len(converters)} fields", len(values), "Regenerate the bindings.")
    return kind(*(convert(value) for convert, value in zip(converters, values, strict=True)))


def encode_values(types: Sequence[str], values: Sequence[object]) -> bytes:
    """abi.encode of values of canonical ``types``; raises InvalidField where one does not fit."""
    try:
        encoded: bytes = encode(types, [to_abi(value) for value in values])
    except (EncodingError, TypeError, ValueError, OverflowError) as error:
        what = f"The contract cannot carry these values ({', '.join(types)})"
        raise InvalidField(what, str(error), "Check each field.") from error
    return encoded


def encode_parameters(parameters: Sequence[Parameter], values: Sequence[object]) -> bytes:
    """abi.encode of typed values for ``parameters``; raises InvalidField as ``encode_values`` does."""
    return encode_values([parameter.type for parameter in parameters], values)


def decode_parameters(parameters: Sequence[Parameter], data: bytes) -> tuple[Any, ...]:
    """Fields of ABI-encoded ``data``; raises InvalidField if it does not have the form of ``parameters``."""
    return _decoded(decode, parameters, data)


def _decoded(read: Callable[..., Any], parameters: Sequence[Parameter], data: bytes) -> tuple[Any, ...]:
    try:
        decoded: tuple[Any, ...] = read([parameter.type for parameter in parameters], data)
    except (DecodingError, OverflowError, ValueError) as error:
        names = ", ".join(parameter.name for parameter in parameters)
        raise InvalidField(f"The data is no encoding of ({names})", data, "Compare contract and bindings.") from error
    return decoded


def decode_announced(parameters: Sequence[Parameter], data: bytes) -> tuple[Any, ...]:
    """As ``decode_parameters``, for what an event announces: bytes of a string that are no character become U+FFFD.

    Not every contract asks what strangers write, and one such byte would keep all from reading what follows.
    """
    return _decoded(_codec_of_strangers().decode, parameters, data)


@lru_cache(maxsize=1)
def _codec_of_strangers() -> ABICodec:
    lenient = registry.copy()
    lenient.unregister_decoder("string")
    lenient.register_decoder("string", StringDecoder(handle_string_errors="replace"), label="string")
    return ABICodec(lenient)


def field_names(kind: Any) -> tuple[str, ...]:
    """Names of a dataclass's fields, in order."""
    return tuple(field.name for field in fields(kind))


@lru_cache(maxsize=256)
def _converters(kind: Any) -> tuple[Converter, ...]:
    hints = get_type_hints(kind)
    return tuple(converter(hints[name]) for name in field_names(kind))


@lru_cache(maxsize=256)
def converter(hint: Any) -> Converter:
    """Function from a decoded value to a field annotated ``hint``."""
    if get_origin(hint) is Annotated:
        return converter(get_args(hint)[0])
    if hint is Address:
        return _address
    if get_origin(hint) is tuple:
        item = converter(get_args(hint)[0])
        return lambda values: tuple(item(value) for value in values)
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda values: from_abi(hint, values)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return lambda number: _member(hint, number)
    return _same


def _member(kind: type[IntEnum], number: int) -> IntEnum:
    try:
        return kind(number)
    except ValueError as error:
        raise InvalidField(f"{kind.__name__} has no such member", number, "Compare contract and bindings.") from error


def _address(value: str) -> Address:
    return address_from_bytes(bytes.fromhex(value[2:]))


def _same(value: Any) -> Any:
    return value
