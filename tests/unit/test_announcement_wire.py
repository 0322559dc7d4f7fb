"""Announcements through frames: nothing is lost, and request and salt come together."""

from __future__ import annotations

import msgspec
import pytest

from troth.protocol.announcement import Announcement, announcement_from_wire, announcement_to_wire, order_from_wire
from troth.protocol.ends import pack_ends
from troth.protocol.errors import WireError
from troth.protocol.request import PROMPT_LIMIT, Request
from troth.protocol.types import SEGMENTS_LIMIT, Hash32, Order, address_from_bytes
from troth.protocol.wire import Forward, decode_frame, encode_frame

ONE, TWO = Hash32(b"\x01" * 32), Hash32(b"\x02" * 32)
ENDS = tuple(range(1, SEGMENTS_LIMIT + 1))
ORDER = Order(ONE, TWO, address_from_bytes(b"\xab" * 20), 2**96 - 1, 2**63 - 1, 3, 4, pack_ends(ENDS))
REQUEST = Request(ONE, (5, 6) * (PROMPT_LIMIT // 2), 8, 1, 2, (0,))
LARGEST = Announcement(
    ORDER, b"\x03" * 65, ENDS, (ONE,) * SEGMENTS_LIMIT, (b"\x04" * 81,) * SEGMENTS_LIMIT,
    REQUEST, TWO,
)  # fmt: skip


@pytest.mark.parametrize("announcement", [LARGEST, LARGEST.without_request()], ids=["with text", "without"])
def test_largest_announcement_survives_a_frame(announcement: Announcement) -> None:
    part, request = announcement_to_wire(announcement)
    header = Forward(ONE, 0, 0, 0, 1, "tokens", True, announcement=part, request_size=len(request))
    frame = decode_frame(encode_frame(header, request + b"rest"))
    assert isinstance(frame.header, Forward)
    assert frame.header.announcement is not None
    size = frame.header.request_size
    assert announcement_from_wire(frame.header.announcement, frame.payload[:size]) == announcement
    assert frame.payload[size:] == b"rest"


def test_request_and_salt_come_together() -> None:
    part, request = announcement_to_wire(LARGEST)
    with pytest.raises(WireError, match="together"):
        announcement_from_wire(part, b"")
    with pytest.raises(WireError, match="together"):
        announcement_from_wire(msgspec.structs.replace(part, salt=None), request)
    with pytest.raises(WireError, match="no canonical request"):
        announcement_from_wire(part, request[:-1])


def test_address_in_lower_case_gets_its_checksum() -> None:
    part, _ = announcement_to_wire(LARGEST)
    lower = msgspec.structs.replace(part.order, scheduler=part.order.scheduler.lower())
    assert order_from_wire(lower, ENDS) == ORDER
