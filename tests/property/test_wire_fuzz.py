"""Nothing that a peer sends makes the decoder raise anything but WireError, and what decodes re-encodes the same."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from msgspec import UNSET

from troth.protocol.errors import WireError
from troth.protocol.logprobs import ALTERNATIVES_LIMIT, PACKED_LIMIT
from troth.protocol.wire import (
    Decoded,
    Failure,
    Message,
    Rows,
    decode_frame,
    encode_frame,
)
from troth.protocol.wire_fields import DECODE_LIMIT, SEQUENCES_LIMIT, RowSignature
from troth.protocol.wire_market import Advance, Conclude, Dismiss, Judge, Poll, Proceed, Unveil
from troth.protocol.wire_reports import (
    LINKS_LIMIT,
    SEGMENTS_HELD_LIMIT,
    HostingPart,
    LinkPart,
    Report,
    Reported,
    SpanPart,
)

words = some.binary(min_size=32, max_size=32)
signatures = some.binary(min_size=65, max_size=65)
bytes_ = some.integers(0, 255)
positions = some.integers(0, 2**32 - 1)
counts = some.integers(1, 65_536)
addresses = some.from_regex(r"\A0x[0-9a-fA-F]{40}\Z")
rows = some.builds(RowSignature, positions, words, words, signatures)
messages = some.one_of(
    some.builds(
        Advance, words, bytes_, some.sampled_from(["infer", "check"]), positions, counts, some.booleans(),
        upstream=some.none() | rows, papers_size=some.integers(0, 1 << 18),
        request_size=some.integers(0, 1_048_576), logprobs=some.just(UNSET) | some.integers(0, ALTERNATIVES_LIMIT),
    ),
    some.builds(
        Rows, positions, counts, rows, some.none() | positions, some.sampled_from([None, "stop", "length"]),
        logprobs=some.just(UNSET) | some.binary(max_size=PACKED_LIMIT),
    ),
    some.builds(
        Judge, words, bytes_, positions, positions, counts, some.none() | rows,
    ),
    some.builds(Proceed, some.integers(0, SEQUENCES_LIMIT), some.integers(1, DECODE_LIMIT)),
    some.builds(Decoded, some.integers(0, SEQUENCES_LIMIT)),
    some.builds(Conclude, words, bytes_, positions, some.integers(0, 65_536)),
    some.builds(Poll, words, bytes_),
    some.builds(Unveil, words, bytes_, some.sampled_from(["infer", "check"]), some.integers(0, 1 << 18)),
    some.builds(Dismiss, words),
    some.builds(
        Report, words, some.integers(0, 2**63 - 1), some.sampled_from(["cpu", "cuda", "mps"]),
        some.integers(0, 2**63 - 1), some.integers(0, 2**63 - 1), bytes_, bytes_, some.integers(0, 10**15),
        some.integers(0, 10**15),
        some.integers(0, 2**63 - 1), positions, some.booleans(), some.booleans(), some.integers(0, 600_000_000),
        some.lists(some.builds(LinkPart, addresses, some.integers(0, 600_000_000)), max_size=LINKS_LIMIT).map(tuple),
    ),
    some.builds(
        Reported,
        some.none() | some.builds(
            HostingPart, some.integers(0, 2**63 - 1), bytes_, bytes_,
            some.lists(some.builds(SpanPart, bytes_, bytes_), min_size=1, max_size=SEGMENTS_HELD_LIMIT).map(tuple),
        ),
        some.lists(addresses, max_size=LINKS_LIMIT).map(tuple),
    ),
    some.builds(Failure, some.from_regex(r"\A[a-z][a-z0-9_]{0,63}\Z"), some.text(max_size=200), some.text(max_size=9)),
)  # fmt: skip
values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=50),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def survives(data: bytes) -> None:
    try:
        frame = decode_frame(data)
    except WireError:
        return
    assert encode_frame(frame.header, bytes(frame.payload)) == data


@given(some.binary(max_size=300))
@example(struct.pack(">I", 1) + b"{")
def test_any_bytes(data: bytes) -> None:
    survives(data)


@given(some.binary(max_size=300), some.binary(max_size=8))
def test_any_header(header: bytes, payload: bytes) -> None:
    survives(struct.pack(">I", len(header)) + header + payload)


@pytest.mark.slow
@given(messages, some.binary(max_size=40))
def test_messages_round_trip(message: Message, payload: bytes) -> None:
    frame = decode_frame(encode_frame(message, payload))
    assert (frame.header, bytes(frame.payload)) == (message, payload)


@given(messages, some.data())
def test_changed_byte_decodes_to_itself_or_not_at_all(message: Message, data: some.DataObject) -> None:
    frame = bytearray(encode_frame(message, b"payload"))
    index = data.draw(some.integers(0, len(frame) - 1))
    frame[index] = data.draw(some.integers(0, 255))
    survives(bytes(frame))


@pytest.mark.slow
@given(messages, some.data())
@settings(max_examples=200)
def test_any_value_in_any_field(message: Message, data: some.DataObject) -> None:
    header = json.loads(encode_frame(message)[4:])
    header[data.draw(some.sampled_from([*header, "more"]))] = data.draw(values)
    encoded = json.dumps(header, separators=(",", ":"), ensure_ascii=data.draw(some.booleans())).encode(
        "utf-8", "surrogatepass"
    )
    survives(struct.pack(">I", len(encoded)) + encoded)


@pytest.mark.slow
@given(messages, some.integers(0, 1 << 32))
def test_truncated_frame(message: Message, size: int) -> None:
    frame = encode_frame(message)
    survives(frame[: size % len(frame)])
