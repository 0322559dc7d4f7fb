"""Reading a request's body: bounded in bytes, seconds and depth."""

from __future__ import annotations

import asyncio

import msgspec
from fastapi import Request

from troth.client.gateway.errors import InvalidParameter, TooLarge, TooSlow
from troth.client.untrusted import bounded_recursion

LARGEST_BODY = 4 * 2**20
"""Bytes. The longest prompt is 256 KiB of text, or tens of thousands of tokens in decimal."""
BODY_SECONDS = 30.0
DEEPEST = 64
"""JSON nested in JSON; the deepest honest request, a tool's schema, has a dozen."""
_BACKSLASH, _QUOTE, _OPENING, _CLOSING = ord("\\"), ord('"'), b"[{", b"]}"
_IRRELEVANT = bytes(byte for byte in range(256) if byte not in b'\\"[]{}')


async def read_body(request: Request, seconds: float = BODY_SECONDS) -> object:
    """The JSON value. Raises TooLarge, TooSlow or InvalidParameter."""
    raw = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                raw += part
                if len(raw) > LARGEST_BODY:
                    raise TooLarge("The request is too large", f"over {LARGEST_BODY} bytes", "Send less.")
    except TimeoutError as error:
        raise TooSlow(f"The request did not come within {seconds:g} s", "", "Send it at once.") from error
    return parse(bytes(raw))


def parse(raw: bytes) -> object:
    """A JSON value; InvalidParameter if it is none, or nested too deeply."""
    require_shallow(raw)
    try:
        with bounded_recursion():
            value: object = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidParameter("The request is not JSON", "", "Send one JSON object.", code="invalid_json") from error
    return value


def require_shallow(raw: bytes) -> None:
    """Count brackets outside of texts before any parser recurses into them."""
    depth, deepest, inside, escaped = 0, 0, False, False
    # Only these bytes matter, and UTF-8 has them nowhere inside another character.
    for byte in raw.translate(None, _IRRELEVANT):
        if escaped:
            escaped = False
        elif inside:
            escaped, inside = byte == _BACKSLASH, byte != _QUOTE
        elif byte == _QUOTE:
            inside = True
        else:
            depth += 1 if byte in _OPENING else -1 if byte in _CLOSING else 0
            deepest = max(deepest, depth)
    if deepest > DEEPEST:
        raise InvalidParameter(
            "The JSON is nested too deeply", deepest, f"Nest at most {DEEPEST}.", code="invalid_json"
        )
