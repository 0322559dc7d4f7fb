"""Reading what a scheduler sends: every value has its type and its bounds checked before anything else looks at it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from troth.client.errors import StreamError
from troth.client.terminal import printable_line

RECURSION_LIMIT = 1000
"""Python's own default; no honest tokenizer, template or stream nests a tenth as deep."""
SHOWN_CHARACTERS = 80
"""Of a value that is refused."""
REMEDY = "Use another scheduler."


@contextmanager
def bounded_recursion() -> Iterator[None]:
    """Inside, input that nests too deeply raises RecursionError. For the client's one thread only.

    A program that embeds this one may have raised Python's limit. From 100,000 on, deeply nested input overflows the C
    stack: the process dies without an exception.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(min(before, RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def read_object(text: bytes) -> dict[str, Any]:
    """A JSON object; StreamError otherwise, also for numbers and nesting that Python cannot take."""
    try:
        with bounded_recursion():
            value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed("The scheduler's answer is not JSON", text) from error
    if not isinstance(value, dict):
        raise _malformed("The scheduler's answer is no object", text)
    return value


def read_hex(value: object, size: int) -> bytes:
    """Bytes of an 0x string of exactly `size` bytes; StreamError otherwise."""
    if isinstance(value, str) and value.startswith("0x") and len(value) == 2 + 2 * size:
        try:
            decoded = bytes.fromhex(value[2:])
        except ValueError:
            decoded = b""
        if len(decoded) == size:
            return decoded
    raise _malformed(f"The scheduler should have sent {size} bytes in hex", value)


def read_whole(value: object, least: int, most: int) -> int:
    """An integer from `least` to `most`, both included; StreamError otherwise."""
    if type(value) is int and least <= value <= most:
        return value
    raise _malformed(f"The scheduler should have sent a whole number from {least} to {most}", value)


def read_number(value: object, least: float, most: float) -> float:
    """A number from `least` to `most`, both included, so never NaN; StreamError otherwise."""
    # Compared before it is converted: a whole number may be too large for a float.
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return float(value)
    raise _malformed(f"The scheduler should have sent a number from {least:g} to {most:g}", value)


def read_text(value: object, longest: int = 500) -> str:
    """A text on one line, cut at `longest` characters, without control characters; StreamError if it is none."""
    if not isinstance(value, str):
        raise _malformed("The scheduler should have sent text", value)
    return printable_line(value, longest)


def read_list(value: object, longest: int) -> list[Any]:
    """A list of at most `longest` values; StreamError otherwise."""
    if isinstance(value, list) and len(value) <= longest:
        return value
    raise _malformed(f"The scheduler should have sent a list of at most {longest} values", value)


def _malformed(what: str, value: object) -> StreamError:
    # Cut before it is rendered where possible: the repr of a huge value is huge, too.
    shown = value[:SHOWN_CHARACTERS] if isinstance(value, bytes | str | list) else value
    return StreamError(what, printable_line(repr(shown), SHOWN_CHARACTERS), REMEDY)
