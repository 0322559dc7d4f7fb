"""Every parser of the overlay against arbitrary bytes: it returns what was encoded, or refuses with its own error."""

from __future__ import annotations

import contextlib

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st
from support.overlay_vectors import layers, secret

from troth.overlay.cells import messages
from troth.overlay.cells.format import HEADER, LARGE, SMALL, Cell, CellReader, Command, EndReason, header, reason_of
from troth.overlay.cells.messages import (
    CAPACITY,
    DESTINATION,
    WINDOW,
    CellMessage,
    Parcel,
    ParcelKind,
    Reassembly,
    ReceiveWindow,
    SendWindow,
    fragments,
)
from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.circuits.handshake import ClientShare, RelayIdentity
from troth.overlay.relay.delivery import DeliveryFrame, DeliveryKind, FrameReader, encode_frame
from troth.transport.errors import (
    CellRefused,
    CellTampered,
    FrameTooLarge,
    HandshakeRefused,
    MalformedCell,
    QuotaExceeded,
)

IDENTITY = RelayIdentity(secret("name"), X25519PrivateKey.from_private_bytes(secret("relay")))
DESCRIPTOR = RelayDescriptor(PinnedAddress("127.0.0.1", 1, IDENTITY.name), IDENTITY.public)

sizes = st.sampled_from((SMALL, LARGE))
cells = st.builds(
    lambda command, circuit_id, size, fill: header(command, circuit_id, size) + bytes([fill]) * (size - HEADER),
    st.sampled_from(Command),
    st.binary(min_size=8, max_size=8),
    sizes,
    st.integers(0, 255),
)


@given(st.lists(cells, max_size=6), st.lists(st.integers(1, 5000), max_size=30))
def test_cells_come_out_whole_however_the_stream_is_cut(sent: list[bytes], cuts: list[int]) -> None:
    reader, stream, got = CellReader(), b"".join(sent), []
    for cut in [*cuts, len(stream)]:
        got += reader.feed(stream[:cut])
        stream = stream[cut:]
        assert reader.held < LARGE
    assert [header(cell.command, cell.circuit_id, cell.size) + cell.body for cell in got] == sent


@given(st.binary(max_size=20_000))
@example(b"\x05" + bytes(2000))
@example(b"\xff")
def test_any_bytes_are_cells_or_refused(data: bytes) -> None:
    reader = CellReader()
    with contextlib.suppress(MalformedCell):
        for cell in reader.feed(data):
            assert isinstance(cell, Cell)
            assert cell.size in (SMALL, LARGE)
    assert reader.held < LARGE


@given(st.sampled_from(ParcelKind), sizes, st.data())
def test_a_parcel_comes_back(kind: ParcelKind, size: int, data: st.DataObject) -> None:
    parcel = Parcel(kind, data.draw(st.binary(max_size=CAPACITY[size])))
    payload = messages.encode(parcel, size)
    assert messages.decode(payload) == parcel
    assert len(payload) == CAPACITY[size] + 3


@given(st.one_of(st.binary(min_size=935, max_size=935), st.binary(min_size=3, max_size=40).map(lambda b: b.ljust(935))))
def test_any_payload_is_a_parcel_or_refused(payload: bytes) -> None:
    with contextlib.suppress(MalformedCell):
        assert len(messages.decode(payload).content) <= CAPACITY[SMALL]


def test_a_parcel_has_a_largest_content() -> None:
    with pytest.raises(MalformedCell):
        messages.encode(Parcel(ParcelKind.DATA, bytes(CAPACITY[SMALL] + 1)))


@given(st.integers(0, 40_000), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
@example(0, True, True, 0)
@example(2781, True, False, 1)
@example(2782, False, False, 1)
def test_a_message_comes_back_and_fits_its_cells(length: int, named: bool, final: bool, number: int) -> None:
    message = CellMessage(number, b"m" * length, bytes(DESTINATION) if named else b"", final)
    reassembly = Reassembly(named=named, largest=40_000, open_messages=1)
    pieces = list(fragments(message))
    assert all(len(content) <= CAPACITY[size] for size, content in pieces)
    got = [reassembly.add(content, 0.0) for _, content in pieces]
    assert got == [None] * (len(pieces) - 1) + [message]
    assert reassembly.held == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from((0, 1, 2, 3, 7, 8, 255)), st.binary(max_size=60)), max_size=40
    )
)
def test_any_fragments_stay_within_bounds(pieces: list[tuple[int, int, bytes]]) -> None:
    reassembly = Reassembly(named=False, largest=100, open_messages=2)
    for number, flags, rest in pieces:
        with contextlib.suppress(MalformedCell, QuotaExceeded):
            message = reassembly.add(number.to_bytes(4, "big") + bytes([flags]) + rest, 0.0)
            assert message is None or len(message.content) <= 100
        # The piece that breaks a bound is the last one: its circuit ends.
        assert reassembly.held <= 2 * 100 + 60 * len(pieces)


@given(st.binary(max_size=60))
def test_any_data_parcel_is_a_fragment_or_refused(content: bytes) -> None:
    with contextlib.suppress(CellRefused):
        Reassembly(named=True, largest=100, open_messages=1).add(content, 0.0)


@given(st.binary(max_size=90))
def test_any_request_is_answered_or_refused(request: bytes) -> None:
    with contextlib.suppress(HandshakeRefused):
        IDENTITY.answer(request)


@given(st.binary(max_size=70))
@example(bytes(64))
def test_no_made_up_answer_is_believed(reply: bytes) -> None:
    with pytest.raises(HandshakeRefused):
        ClientShare.new(DESCRIPTOR).finish(reply)


@given(st.binary(min_size=951, max_size=951))
def test_any_body_is_refused_by_every_layer(body: bytes) -> None:
    onion, relays = layers(3)
    with pytest.raises(CellTampered):
        relays[0].open(body + bytes(64))
    with pytest.raises(CellTampered):
        onion.peel(body + bytes(64))


@given(st.binary(max_size=4))
def test_any_credit_is_within_what_was_sent_or_refused(content: bytes) -> None:
    window = SendWindow()
    window.take()
    with contextlib.suppress(MalformedCell):
        window.credited(content)
    assert window.left <= WINDOW


@given(st.lists(st.booleans(), max_size=400))
def test_a_sender_that_waits_for_credits_is_never_refused(turns: list[bool]) -> None:
    send, receive, on_the_way = SendWindow(), ReceiveWindow(), []
    for turn in turns:
        if turn and send.left:
            send.take()
            credit = receive.received()
            if credit is not None:
                on_the_way.append(credit)
        elif on_the_way:
            send.credited(on_the_way.pop(0))


def test_a_sender_that_does_not_wait_is_refused() -> None:
    receive = ReceiveWindow()
    receive._granted = 1
    receive.received()
    with pytest.raises(QuotaExceeded):
        receive.received()


@given(st.integers(0, 255))
def test_any_reason_is_one(value: int) -> None:
    assert reason_of(value) in EndReason


frames = st.builds(
    DeliveryFrame, st.sampled_from(DeliveryKind), st.binary(min_size=16, max_size=16), st.binary(max_size=200)
)


@given(st.lists(frames, max_size=5), st.lists(st.integers(1, 100), max_size=20))
def test_delivery_frames_come_out_whole_however_the_stream_is_cut(sent: list[DeliveryFrame], cuts: list[int]) -> None:
    reader, stream, got = FrameReader(200), b"".join(map(encode_frame, sent)), []
    for cut in [*cuts, len(stream)]:
        got += reader.feed(stream[:cut])
        stream = stream[cut:]
    assert got == sent


@given(st.binary(max_size=500))
def test_any_bytes_are_delivery_frames_or_refused(data: bytes) -> None:
    reader = FrameReader(100)
    with contextlib.suppress(MalformedCell, FrameTooLarge):
        for frame in reader.feed(data):
            assert len(frame.content) <= 100
