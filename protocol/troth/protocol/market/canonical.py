"""Canonical JSON of the market's frozen types: the form of receipts, of papers between parties and of HTTP bodies.

Sorted keys, no spaces, numbers as decimal strings (JSON numbers lose digits beyond 2^53), bytes as 0x and lower-case
digits, nothing left out. The type says what is read, so that nothing but such a value comes out; bytes that are not
the canonical form of what they hold are refused, so that what was signed or hashed is what was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from json.encoder import encode_basestring_ascii
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from troth.protocol.errors import InvalidField, ProtocolError
from troth.protocol.market.messages import Signed
from troth.protocol.types import Address, Hash32, address_to_bytes

Value = TypeVar("Value")
Reader = Callable[[Any], Any]
Writer = Callable[[Any], str]

_REMEDY = "Send it as it was written."
_ITEMS_LIMIT = 1 << 16
"""Items of one list."""


def encode(value: Any) -> bytes:
    """The canonical bytes of a frozen dataclass of this protocol; equal values have equal bytes."""
    return _written(value).encode("ascii")


def decode(kind: type[Value], data: bytes | memoryview, limit: int) -> Value:
    """Inverse of ``encode``; raises InvalidField unless ``data`` is exactly what it returns for some ``kind``."""
    name = kind.__name__.lower()
    if len(data) > limit:
        raise InvalidField(f"A {name} has at most {limit} bytes", len(data), "Send less.")
    raw = bytes(data)
    try:
        value: Value = from_json(kind, json.loads(raw))
        same = encode(value) == raw
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = error.what if isinstance(error, ProtocolError) else str(error)
        raise InvalidField(f"This is no {name}", why[:300], _REMEDY) from error
    if not same:
        raise InvalidField(f"The {name} is not in its canonical form", len(data), _REMEDY)
    return value


def to_json(value: Any) -> Any:
    """What ``json.dumps`` takes."""
    kind: Any = type(value)
    names = _names(kind)
    if names is not None:
        return {name: to_json(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [to_json(item) for item in value]
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return str(int(value)) if isinstance(value, int) and not isinstance(value, bool) else value


def from_json(hint: Any, value: Any) -> Any:
    """``value`` as the annotation says; raises InvalidField or one of json's own errors where it is not."""
    return _reader(hint)(value)


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """Fields of a dataclass; None for another type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def _written(value: Any) -> str:
    kind: Any = type(value)
    return _writer(kind)(value)


@lru_cache(maxsize=1 << 9)
def _signed_text(signed: Signed[Any]) -> str:
    """Kept, since what is signed goes from papers to journals to answers: an order is written half a dozen times.

    Equal messages have equal texts: each field has one type, and ``from_json`` makes no other.
    """
    return _object_writer(["message", "signature"])(signed)


@cache
def _writer(kind: Any) -> Writer:
    """Writes values of one type. Made once a type: an order is written a dozen times on its way."""
    names = _names(kind)
    if kind is Signed:
        return _signed_text
    if names is not None:
        return _object_writer(sorted(names))
    if issubclass(kind, tuple):
        return lambda items: f"[{','.join([_written(item) for item in items])}]"
    if issubclass(kind, bytes):
        return lambda data: f'"0x{data.hex()}"'
    if issubclass(kind, str):
        return encode_basestring_ascii
    if kind is bool:
        return lambda truth: "true" if truth else "false"
    if issubclass(kind, int):
        return lambda number: f'"{int(number)}"'
    if kind is NoneType:
        return lambda _none: "null"
    raise TypeError(f"{kind.__name__} has no canonical form")


def _object_writer(names: list[str]) -> Writer:
    keys = [f'"{name}":' for name in names]
    # A single name would give its value, not a tuple of it: it is asked for twice.
    values: Callable[[Any], tuple[Any, ...]] = attrgetter(*names, *names[:1])

    def write(value: Any) -> str:
        return f"{{{','.join([key + _written(one) for key, one in zip(keys, values(value), strict=False)])}}}"

    return write


@cache
def _reader(hint: Any) -> Reader:
    """Reads what an annotation describes. Made once an annotation."""
    origin, of = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _reader(of[0])
    if origin in {UnionType, Union}:
        return _optional_reader(_reader(of[0]))
    if origin is tuple:
        return _items_reader(_reader(of[0]))
    if origin is Signed:
        return _object_reader(Signed, {"message": of[0], "signature": bytes})
    if is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        return _object_reader(hint, {field.name: hints[field.name] for field in fields(hint)})
    return _scalar_reader(hint)


def _optional_reader(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


def _items_reader(read: Reader) -> Reader:
    def items(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > _ITEMS_LIMIT:
            raise InvalidField(f"A list of at most {_ITEMS_LIMIT} items belongs here", type(value).__name__, _REMEDY)
        return tuple([read(item) for item in value])

    return items


def _object_reader(kind: Any, hints: dict[str, Any]) -> Reader:
    wanted = hints.keys()
    readers = [(name, _reader(hint)) for name, hint in hints.items()]

    def read(value: Any) -> Any:
        if not isinstance(value, dict) or value.keys() != wanted:
            found = sorted(value) if isinstance(value, dict) else type(value).__name__
            raise InvalidField(f"The fields are {', '.join(sorted(wanted))}", str(found)[:200], _REMEDY)
        return kind(*[read_field(value[name]) for name, read_field in readers])

    return read


def _scalar_reader(hint: Any) -> Reader:
    if hint is bool:
        return _truth
    if hint is Address:
        return _address
    if hint is Hash32:
        return _hash
    if hint is str:
        return _unicode
    if isinstance(hint, type) and issubclass(hint, int):
        return lambda value: hint(_number(value))
    return _data


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidField("true or false belongs here", str(value)[:80], _REMEDY)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidField("Numbers, bytes and text are strings here", str(value)[:80], _REMEDY)
    return value


def _unicode(value: Any) -> str:
    text = _text(value)
    if not text.isascii():
        text.encode()  # half of a surrogate pair is no text, and could not be kept, shown or sent on
    return text


def _address(value: Any) -> Address:
    address_to_bytes(Address(_text(value)))
    return Address(value)


def _number(value: Any) -> int:
    text = _text(value)
    if not text.isascii() or not text.isdecimal() or len(text) > 78:
        raise InvalidField("A number is up to 78 decimal digits", text[:80], _REMEDY)
    return int(text)


def _data(value: Any) -> bytes:
    return bytes.fromhex(_text(value).removeprefix("0x"))


def _hash(value: Any) -> Hash32:
    data = _data(value)
    if len(data) != 32:
        raise InvalidField("A hash has 32 bytes", str(value)[:80], _REMEDY)
    return Hash32(data)
