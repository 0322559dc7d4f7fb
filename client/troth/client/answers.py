"""Reading what a scheduler sends: bounded, typed, and never printed raw."""

from __future__ import annotations

import json
from typing import Any

from troth.client.errors import InsufficientBalance, SchedulerRefused, StreamError
from troth.client.money import LARGEST
from troth.client.terminal import printable_line
from troth.protocol.types import Hash32

LONGEST_LIST = 256
"""Entries of a list that is no list of tokens: segments, parties, classes."""


def read_object(text: bytes) -> dict[str, Any]:
    """A JSON object; StreamError for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StreamError("The scheduler's answer is not JSON", repr(text[:60]), "Use another scheduler.") from error
    if not isinstance(value, dict):
        raise StreamError("The scheduler's answer is no object", repr(text[:60]), "Use another scheduler.")
    return value


def read_hex(value: object, size: int) -> bytes:
    """Bytes of an 0x string of exactly `size` bytes; StreamError otherwise."""
    if isinstance(value, str) and value.startswith("0x") and len(value) == 2 + 2 * size:
        try:
            return bytes.fromhex(value[2:])
        except ValueError as error:
            raise _not_hex(value, size) from error
    raise _not_hex(value, size)


def read_list(line: dict[str, Any], name: str) -> list[Any]:
    """The list `name` of an object, of a sensible length; StreamError otherwise."""
    value = line.get(name)
    if not isinstance(value, list) or len(value) > LONGEST_LIST:
        raise StreamError(f"The scheduler's answer has no list `{name}`", repr(value)[:80], "Use another scheduler.")
    return value


def read_count(value: object, what: str, limit: int) -> int:
    """A whole number from 0 to `limit`; StreamError otherwise."""
    if type(value) is not int or not 0 <= value <= limit:
        raise StreamError(f"The scheduler should have sent a number for {what}", repr(value)[:80], "See the receipt.")
    return value


def read_classes(info: dict[str, Any]) -> dict[Hash32, tuple[int, ...]]:
    """The classes of GET /v1/info, each with the ends of its segments."""
    classes = {}
    for entry in read_list(info, "classes"):
        if not isinstance(entry, dict):
            raise StreamError("A served class is no object", repr(entry)[:80], "Use another scheduler.")
        ends = tuple(read_count(end, "a segment's end", 255) for end in read_list(entry, "ends"))
        classes[Hash32(read_hex(entry.get("id"), 32))] = ends
    return classes


def refusal(status: int, body: bytes) -> SchedulerRefused | InsufficientBalance:
    """The error behind an HTTP status of 400 and more."""
    try:
        parts = read_object(body).get("error")
    except StreamError:
        parts = None  # no JSON: a proxy's page perhaps; the status alone has to do
    if not isinstance(parts, dict):
        return SchedulerRefused("The scheduler refused the request", f"HTTP {status}", "Try again, or use another one.")
    code, message = printable_line(parts.get("code"), 60), printable_line(parts.get("message"))
    shortfall = parts.get("shortfall")
    if code == "insufficient_escrow" and isinstance(shortfall, str) and shortfall.isdecimal():
        wei = min(int(shortfall[:40]), LARGEST)
        return InsufficientBalance(message, f"{wei} wei short", f"Top up with `troth client deposit {wei}wei --broadcast`.")
    remedy = printable_line(parts.get("remedy") or "Try again, or use another scheduler.")
    return SchedulerRefused(f"The scheduler refused: {message}", f"HTTP {status}, {code}", remedy, code)


def _not_hex(value: object, size: int) -> StreamError:
    return StreamError(f"The scheduler should have sent {size} bytes in hex", repr(value)[:80], "Use another scheduler.")
