"""Requests and answers as a session carries them: an HTTP exchange in MessagePack, whose body may come in pieces.

The first segment of an answer is its head; all that follow are its body, in order. The body ends with the message.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec

from troth.overlay.sessions.errors import MalformedFrame, RequestTooLarge
from troth.overlay.sida.clove import MESSAGE_ID_BYTES

LARGEST_REQUEST = 4 * 2**20
LARGEST_HEAD = 16 * 1024
_HEADERS = 64
_Text = Annotated[str, msgspec.Meta(max_length=8192)]
_Header = tuple[_Text, _Text]
_ENCODER = msgspec.msgpack.Encoder()


class HttpRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One HTTP request; `target` is path and query."""

    method: Annotated[str, msgspec.Meta(pattern=r"^[A-Z]{1,10}\Z")]
    target: Annotated[str, msgspec.Meta(min_length=1, max_length=8192, pattern="^/")]
    headers: Annotated[tuple[_Header, ...], msgspec.Meta(max_length=_HEADERS)]
    body: bytes


class ResponseHead(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Status and headers of the answer."""

    status: Annotated[int, msgspec.Meta(ge=100, le=599)]
    headers: Annotated[tuple[_Header, ...], msgspec.Meta(max_length=_HEADERS)]


_REQUEST = msgspec.msgpack.Decoder(HttpRequest)
_HEAD = msgspec.msgpack.Decoder(ResponseHead)


def encode_request(request: HttpRequest) -> bytes:
    """Raises RequestTooLarge."""
    encoded = _ENCODER.encode(request)
    if len(encoded) > LARGEST_REQUEST:
        raise RequestTooLarge(f"A request has at most {LARGEST_REQUEST} bytes", len(encoded), "Shorten it.")
    return encoded


def decode_request(content: bytes) -> HttpRequest:
    """Raises MalformedFrame."""
    try:
        return _REQUEST.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFrame("The session's message is no request", error) from error


def encode_head(head: ResponseHead) -> bytes:
    """The first segment of an answer."""
    return _ENCODER.encode(head)


def decode_head(content: bytes) -> ResponseHead:
    """Raises MalformedFrame."""
    try:
        if len(content) > LARGEST_HEAD:
            raise MalformedFrame("The head of an answer is too long", len(content))
        return _HEAD.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFrame("The answer does not begin with a head", error) from error


def reply_id(request: bytes) -> bytes:
    """Message id of the answer to a request: both ends know it, so no other message can come in its place."""
    return hashlib.sha256(b"troth session 1: answer to " + request).digest()[:MESSAGE_ID_BYTES]
