"""Frames: frozen bytes, canonical headers, limits."""

from __future__ import annotations

import struct

import pytest

from troth.protocol.errors import WireError
from troth.protocol.logprobs import PACKED_LIMIT
from troth.protocol.wire import (
    HEADER_LIMIT,
    Failure,
    Rows,
    decode_frame,
    encode_frame,
)
from troth.protocol.wire_fields import RowSignature
from troth.protocol.wire_market import Advance, Dismiss

ID = b"\x00" * 32
TEXT = b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
DISMISS = b'{"type":"Dismiss","order":"' + TEXT + b'"}'
ROW = RowSignature(4, b"\x01" * 32, b"\x02" * 32, b"\x03" * 65)


def framed(header: bytes, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(header)) + header + payload


def test_frozen_frames() -> None:
    assert encode_frame(Dismiss(ID), b"tail") == framed(DISMISS, b"tail")
    frame = decode_frame(framed(DISMISS, b"tail"))
    assert (frame.header, bytes(frame.payload)) == (Dismiss(ID), b"tail")
    expected = (
        b'{"type":"Advance","order":"' + TEXT + b'","segment":1,"role":"infer","start":3,"count":2,'
        b'"emit":false,"upstream":{"position":4,"row_hash":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",'
        b'"previous":"AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=","signature":'
    )
    assert encode_frame(Advance(ID, 1, "infer", 3, 2, upstream=ROW))[4:].startswith(expected)


@pytest.mark.parametrize(
    "message",
    [
        Advance(ID, 255, "check", 2**32 - 1, 65_536, True, upstream=ROW, papers_size=1 << 18),
        Rows(0, 1, ROW, token=7, finished="stop"),
        Rows(0, 1, ROW, token=7, logprobs=b"\x05" * PACKED_LIMIT),
        Advance(ID, 1, "infer", 3, 2, True, logprobs=20),
        Failure("unknown_task", "The node has no such task: 0xab…", "Announce it again."),
    ],
)
def test_messages_survive(message: Advance | Rows | Failure) -> None:
    for data in (encode_frame(message, b"xyz"), bytearray(encode_frame(message, b"xyz"))):
        frame = decode_frame(data)
        assert (frame.header, bytes(frame.payload)) == (message, b"xyz")


NOT_CANONICAL = {
    "duplicate key": b'{"type":"Dismiss","order":"' + TEXT + b'","order":"' + TEXT + b'"}',
    "space": DISMISS.replace(b":", b": "),
    "trailing space": DISMISS + b" ",
    "other key order": b'{"order":"' + TEXT + b'","type":"Dismiss"}',
    "escaped text": DISMISS.replace(b"order", b"t\\u0061sk_id"),
    "stray base64 bits": DISMISS.replace(b"AAA=", b"AAB="),
    "default written twice": DISMISS[:-1] + b',"order":"' + TEXT + b'"}',
}
INVALID = {
    "unknown field": DISMISS[:-1] + b',"more":1}',
    "unknown type": DISMISS.replace(b"Dismiss", b"Retain"),
    "no type": b'{"order":"' + TEXT + b'"}',
    "short id": DISMISS.replace(b"AAAA", b"", 1),
    "long id": DISMISS.replace(b"AAAA", b"AAAAAAAA", 1),
    "null id": b'{"type":"Dismiss","order":null}',
    "no JSON": b"\x80\x04K\x01.",
    "array": b"[]",
    "deep nesting": b"[" * 60_000,
    "deep object": b'{"type":' * 7_000,
    "not UTF-8": DISMISS.replace(b"Dismiss", b"\xff\xfe"),
    "two values": DISMISS + DISMISS,
}


@pytest.mark.parametrize("name", [*NOT_CANONICAL, *INVALID])
def test_header_that_is_no_canonical_message(name: str) -> None:
    with pytest.raises(WireError):
        decode_frame(framed({**NOT_CANONICAL, **INVALID}[name]))


def numbers(**changes: str) -> bytes:
    fields = {"segment": "0", "role": '"infer"', "start": "0", "count": "1", "emit": "true"} | changes
    body = ",".join(f'"{name}":{value}' for name, value in fields.items())
    return b'{"type":"Advance","order":"' + TEXT + b'",' + body.encode() + b"}"


REST = {"upstream": "null", "papers_size": "0", "request_size": "0"}


def test_log_probabilities_that_nobody_asked_for_are_no_field() -> None:
    """So a peer of an earlier version reads every message but those that ask."""
    asking, plain = Advance(ID, 1, "infer", 3, 2, True, logprobs=0), Advance(ID, 1, "infer", 3, 2, True)
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
    assert decode_frame(framed(numbers(**REST))).header == Advance(ID, 0, "infer", 0, 1, True)


@pytest.mark.parametrize(
    "change",
    [
        {"segment": "256"}, {"segment": "-1"}, {"segment": "1.0"}, {"segment": "true"}, {"segment": '"1"'},
        {"start": "4294967296"}, {"start": "1e3"}, {"start": "99999999999999999999999999"}, {"start": "00"},
        {"count": "0"}, {"count": "65537"}, {"role": '"pickle"'}, {"emit": "1"}, {"start": "-0"},
        {"request_size": "1048577"}, {"upstream": "{}"}, {"papers_size": "262145"}, {"start": "NaN"},
        {"upstream": '"AA=="'},
    ],
)  # fmt: skip
def test_field_outside_its_range(change: dict[str, str]) -> None:
    with pytest.raises(WireError):
        decode_frame(framed(numbers(**(REST | change))))


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0\0", bytes(4), struct.pack(">I", 2**32 - 1) + DISMISS, struct.pack(">I", len(DISMISS) + 1) + DISMISS],
)
def test_frame_shorter_than_it_says(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_frame(data)


def test_limits() -> None:
    with pytest.raises(WireError, match="1 to 65536"):
        decode_frame(framed(b" " * (HEADER_LIMIT + 1)))
    assert len(decode_frame(framed(DISMISS, bytes(10)), payload_limit=10).payload) == 10
    with pytest.raises(WireError, match="at most 10"):
        decode_frame(framed(DISMISS, bytes(11)), payload_limit=10)
    with pytest.raises(WireError, match="A header has at most"):
        encode_frame(Failure("long", "x" * HEADER_LIMIT, ""))


def test_error_shows_no_payload_and_little_of_the_header() -> None:
    with pytest.raises(WireError) as caught:
        decode_frame(framed(b'{"type":"' + b"secret" * 5_000 + b'"}', b"prompt"))
    assert len(str(caught.value)) < 1_000
    assert "prompt" not in str(caught.value)
