"""Frames: frozen bytes, canonical headers, limits."""

from __future__ import annotations

import struct

import pytest

from troth.protocol.errors import WireError
from troth.protocol.logprobs import PACKED_LIMIT
from troth.protocol.wire import (
    HEADER_LIMIT,
    Failure,
    Forward,
    Opened,
    Release,
    Rows,
    decode_frame,
    encode_frame,
)
from troth.protocol.wire_fields import RowSignature

ID = b"\x00" * 32
TEXT = b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
RELEASE = b'{"type":"Release","task_id":"' + TEXT + b'"}'
ROW = RowSignature(4, b"\x01" * 32, b"\x02" * 32, b"\x03" * 65)


def framed(header: bytes, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(header)) + header + payload


def test_frozen_frames() -> None:
    assert encode_frame(Release(ID), b"tail") == framed(RELEASE, b"tail")
    frame = decode_frame(framed(RELEASE, b"tail"))
    assert (frame.header, bytes(frame.payload)) == (Release(ID), b"tail")
    expected = (
        b'{"type":"Forward","task_id":"' + TEXT + b'","segment":1,"attempt":0,"start":3,"count":2,"kind":"rows",'
        b'"emit":false,"upstream":{"position":4,"row_hash":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",'
        b'"previous":"AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=","signature":'
    )
    assert encode_frame(Forward(ID, 1, 0, 3, 2, "rows", False, upstream=ROW))[4:].startswith(expected)


@pytest.mark.parametrize(
    "message",
    [
        Forward(ID, 255, 255, 2**32 - 1, 65_536, "tokens", True, upstream=ROW, countersignature=b"\x04" * 65),
        Rows(0, 1, ROW, token=7, finished="stop"),
        Rows(0, 1, ROW, token=7, logprobs=b"\x05" * PACKED_LIMIT),
        Forward(ID, 1, 0, 3, 2, "rows", True, logprobs=20),
        Opened(ID, True, ID, 1, 11),
        Failure("unknown_task", "The node has no such task: 0xab…", "Announce it again."),
    ],
)
def test_messages_survive(message: Forward | Rows | Opened | Failure) -> None:
    for data in (encode_frame(message, b"xyz"), bytearray(encode_frame(message, b"xyz"))):
        frame = decode_frame(data)
        assert (frame.header, bytes(frame.payload)) == (message, b"xyz")


NOT_CANONICAL = {
    "duplicate key": b'{"type":"Release","task_id":"' + TEXT + b'","task_id":"' + TEXT + b'"}',
    "space": RELEASE.replace(b":", b": "),
    "trailing space": RELEASE + b" ",
    "other key order": b'{"task_id":"' + TEXT + b'","type":"Release"}',
    "escaped text": RELEASE.replace(b"task_id", b"t\\u0061sk_id"),
    "stray base64 bits": RELEASE.replace(b"AAA=", b"AAB="),
    "default written twice": RELEASE[:-1] + b',"task_id":"' + TEXT + b'"}',
}
INVALID = {
    "unknown field": RELEASE[:-1] + b',"more":1}',
    "unknown type": RELEASE.replace(b"Release", b"Retain"),
    "no type": b'{"task_id":"' + TEXT + b'"}',
    "short id": RELEASE.replace(b"AAAA", b"", 1),
    "long id": RELEASE.replace(b"AAAA", b"AAAAAAAA", 1),
    "null id": b'{"type":"Release","task_id":null}',
    "no JSON": b"\x80\x04K\x01.",
    "array": b"[]",
    "deep nesting": b"[" * 60_000,
    "deep object": b'{"type":' * 7_000,
    "not UTF-8": RELEASE.replace(b"Release", b"\xff\xfe"),
    "two values": RELEASE + RELEASE,
}


@pytest.mark.parametrize("name", [*NOT_CANONICAL, *INVALID])
def test_header_that_is_no_canonical_message(name: str) -> None:
    with pytest.raises(WireError):
        decode_frame(framed({**NOT_CANONICAL, **INVALID}[name]))


def numbers(**changes: str) -> bytes:
    fields = {"segment": "0", "attempt": "0", "start": "0", "count": "1", "kind": '"rows"', "emit": "true"} | changes
    body = ",".join(f'"{name}":{value}' for name, value in fields.items())
    return b'{"type":"Forward","task_id":"' + TEXT + b'",' + body.encode() + b"}"


REST = {
    "upstream": "null", "countersignature": "null", "announcement": "null", "request_size": "0", "review": "null"
}  # fmt: skip


def test_log_probabilities_that_nobody_asked_for_are_no_field() -> None:
    """So a peer of an earlier version reads every message but those that ask."""
    asking, plain = Forward(ID, 1, 0, 3, 2, "rows", True, logprobs=0), Forward(ID, 1, 0, 3, 2, "rows", True)
    assert encode_frame(asking)[4:] == encode_frame(plain)[4:-1] + b',"logprobs":0}'
    assert encode_frame(Rows(0, 1, ROW, 7))[4:].endswith(b'"finished":null,"model_microseconds":0}')


@pytest.mark.parametrize("value", ["-1", "21", "1.0", "true", "null", '"1"', "[]"])
def test_only_so_many_alternatives_can_be_asked_for(value: str) -> None:
    with pytest.raises(WireError):
        decode_frame(framed(numbers(**REST, logprobs=value)))
    assert decode_frame(framed(numbers(**REST, logprobs="20"))).header.logprobs == 20


def test_log_probabilities_have_a_limit() -> None:
    with pytest.raises(WireError):
        decode_frame(encode_frame(Rows(0, 1, ROW, token=7, logprobs=bytes(PACKED_LIMIT + 1))))


def test_written_defaults_are_the_canonical_form() -> None:
    assert decode_frame(framed(numbers(**REST))).header == Forward(ID, 0, 0, 0, 1, "rows", True)


@pytest.mark.parametrize(
    "change",
    [
        {"segment": "256"}, {"segment": "-1"}, {"segment": "1.0"}, {"segment": "true"}, {"segment": '"1"'},
        {"start": "4294967296"}, {"start": "1e3"}, {"start": "99999999999999999999999999"}, {"start": "00"},
        {"count": "0"}, {"count": "65537"}, {"kind": '"pickle"'}, {"emit": "1"}, {"start": "-0"},
        {"request_size": "1048577"}, {"upstream": "{}"}, {"announcement": "[]"}, {"start": "NaN"},
        {"countersignature": '"AA=="'},
    ],
)  # fmt: skip
def test_field_outside_its_range(change: dict[str, str]) -> None:
    with pytest.raises(WireError):
        decode_frame(framed(numbers(**(REST | change))))


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0\0", bytes(4), struct.pack(">I", 2**32 - 1) + RELEASE, struct.pack(">I", len(RELEASE) + 1) + RELEASE],
)
def test_frame_shorter_than_it_says(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_frame(data)


def test_limits() -> None:
    with pytest.raises(WireError, match="1 to 65536"):
        decode_frame(framed(b" " * (HEADER_LIMIT + 1)))
    assert len(decode_frame(framed(RELEASE, bytes(10)), payload_limit=10).payload) == 10
    with pytest.raises(WireError, match="at most 10"):
        decode_frame(framed(RELEASE, bytes(11)), payload_limit=10)
    with pytest.raises(WireError, match="A header has at most"):
        encode_frame(Failure("long", "x" * HEADER_LIMIT, ""))


def test_error_shows_no_payload_and_little_of_the_header() -> None:
    with pytest.raises(WireError) as caught:
        decode_frame(framed(b'{"type":"' + b"secret" * 5_000 + b'"}', b"prompt"))
    assert len(str(caught.value)) < 1_000
    assert "prompt" not in str(caught.value)
