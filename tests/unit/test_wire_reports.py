"""Reports: frozen bytes, and bounds that hold before anything else looks at them."""

from __future__ import annotations

import json
import struct
from typing import Any

import msgspec
import pytest
from support.pool_members import report

from troth.protocol.errors import WireError
from troth.protocol.wire import decode_frame, encode_frame
from troth.protocol.wire_fields import AddressText
from troth.protocol.wire_reports import HostingPart, LinkPart, Reported, SpanPart

NODE = "0x" + "ab" * 20


def changed(**fields: Any) -> bytes:
    """A report's frame with other fields than the encoder would let through."""
    header = {**json.loads(encode_frame(report(3, 0, 4))[4:]), **fields}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">I", len(encoded)) + encoded


def test_frozen_frames() -> None:
    assert encode_frame(report(3, 0, 4, links=(LinkPart(NODE, 7),)))[4:] == (
        b'{"type":"Report","execution_class":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","sequence":3,"device":"cpu",'
        b'"memory_bytes":1200,"cache_bytes":0,"first":0,"end":4,"decode_nanoseconds":10000000,"prefill_nanoseconds":1000000,'
        b'"cache_tokens":1000,"running":0,"movable":true,"leaving":false,"round_trip":0,'
        b'"links":[{"node":"0xabababababababababababababababababababab","microseconds":7}]}'
    )
    assert encode_frame(Reported(HostingPart(9, 0, 4, (SpanPart(0, 4),)), (NODE,)))[4:] == (
        b'{"type":"Reported","hosting":{"number":9,"first":0,"end":4,"segments":[{"first":0,"end":4}]},'
        b'"probes":["0xabababababababababababababababababababab"]}'
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"sequence": -1}, {"sequence": 2**63}, {"first": 256}, {"end": 1.5}, {"device": "tpu"},
        {"decode_nanoseconds": -1},
        {"decode_nanoseconds": 10**15 + 1}, {"decode_nanoseconds": 0.1}, {"memory_bytes": "1"}, {"movable": 1},
        {"links": [{"node": NODE, "microseconds": 1}] * 17}, {"links": [{"node": "0x", "microseconds": 1}]},
        {"round_trip": 600_000_001}, {"execution_class": ""}, {"more": 1},
    ],
)  # fmt: skip
def test_what_lies_out_of_bounds_is_no_report(fields: dict[str, Any]) -> None:
    assert decode_frame(changed()).header == report(3, 0, 4)
    with pytest.raises(WireError):
        decode_frame(changed(**fields))


@pytest.mark.parametrize("ending", ["\n", " ", "a"])
def test_an_address_ends_where_it_ends(ending: str) -> None:
    """A pattern that ends in a dollar sign lets one line's end through: another string for the same address."""
    address = "0x" + "ab" * 20
    assert msgspec.convert(address, AddressText) == address
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(address + ending, AddressText)
