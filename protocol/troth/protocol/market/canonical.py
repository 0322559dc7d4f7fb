"""Canonical JSON of the market's frozen types: the form of receipts, of papers between parties and of HTTP bodies.

Sorted keys, no spaces, numbers as decimal strings (JSON numbers lose digits beyond 2^53), bytes as 0x and lower-case
digits, nothing left out. The type says what is read, so that nothing but such a value comes out; bytes that are not
the canonical form of what they hold are refused, so that what was signed or hashed is what was read.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from troth.protocol.errors import InvalidField, ProtocolError
from troth.protocol.market.messages import Signed
from troth.protocol.types import Address, Hash32, address_to_bytes

Value = TypeVar("Value")

_REMEDY = "Send it as it was written."
_ITEMS_LIMIT = 1 << 16
"""Items of one list."""


def encode(value: Any) -> bytes:
    """The canonical bytes of a frozen dataclass of this protocol; equal values have equal bytes."""
    return json.dumps(to_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


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
    origin = get_origin(hint)
    if origin is Annotated:
        return from_json(get_args(hint)[0], value)
    if origin in {UnionType, Union}:
        return None if value is None else from_json(get_args(hint)[0], value)
    if origin is tuple:
        return _items(get_args(hint)[0], value)
    if origin is Signed:
        _require_keys(value, {"message", "signature"})
        return Signed(from_json(get_args(hint)[0], value["message"]), from_json(bytes, value["signature"]))
    if is_dataclass(hint):
        kind: Any = hint
        hints = _hints(kind)
        _require_keys(value, hints.keys())
        return kind(**{name: from_json(one, value[name]) for name, one in hints.items()})
    return _scalar(hint, value)


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """Fields of a dataclass, looked up once: an order is written a dozen times on its way. None for another type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def _items(hint: Any, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) > _ITEMS_LIMIT:
        raise InvalidField(f"A list of at most {_ITEMS_LIMIT} items belongs here", type(value).__name__, _REMEDY)
    return tuple(from_json(hint, item) for item in value)


def _require_keys(value: Any, wanted: Any) -> None:
    if not isinstance(value, dict) or value.keys() != set(wanted):
        found = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise InvalidField(f"The fields are {', '.join(sorted(wanted))}", str(found)[:200], _REMEDY)


def _scalar(hint: Any, value: Any) -> Any:
    if hint is bool:
        if not isinstance(value, bool):
            raise InvalidField("true or false belongs here", str(value)[:80], _REMEDY)
        return value
    if not isinstance(value, str):
        raise InvalidField("Numbers, bytes and text are strings here", str(value)[:80], _REMEDY)
    if hint is Address:
        address_to_bytes(value)
        return value
    if hint is str:
        return value
    if isinstance(hint, type) and issubclass(hint, int):
        if not value.isascii() or not value.isdecimal() or len(value) > 78:
            raise InvalidField("A number is up to 78 decimal digits", value[:80], _REMEDY)
        return hint(int(value))
    data = bytes.fromhex(value.removeprefix("0x"))
    if hint is Hash32 and len(data) != 32:
        raise InvalidField("A hash has 32 bytes", value[:80], _REMEDY)
    return data
