"""Every frame and delivery reads back; nothing else is read, and a destination survives any bytes."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import example, given, settings
from hypothesis import strategies as st

from troth.overlay.sessions import frames
from troth.overlay.sessions.destination import Destination
from troth.overlay.sessions.errors import MalformedFrame, ReplayedFrame
from troth.overlay.sessions.frames import CounterWindow, PathKeys
from troth.overlay.sessions.messages import (
    HttpRequest,
    ResponseHead,
    decode_head,
    decode_request,
    encode_head,
    encode_request,
)
from troth.overlay.sessions.opening import SEALED_BYTES, PathHandshake
from troth.overlay.sida import Threshold
from troth.transport.errors import OverlayError

IDS = st.binary(min_size=16, max_size=16)
COUNTERS = st.integers(0, 2**40 - 1)
SECRET = X25519PrivateKey.generate()
PATH = PathHandshake.new(os.urandom(32), 1000, Threshold(4, 3))
SEALED = PATH.seal(SECRET.public_key().public_bytes_raw(), bytes(32))


@given(IDS, COUNTERS, st.binary(min_size=1, max_size=200))
def test_deliveries_read_back(path_id, counter, sealed):
    known = frames.parse_delivery(frames.encode_known(path_id, counter, sealed))
    assert known == frames.Delivery(b"", path_id, counter, sealed)
    opening = os.urandom(SEALED_BYTES)
    opened = frames.parse_delivery(frames.encode_opening(opening, counter, sealed))
    assert opened == frames.Delivery(opening, b"", counter, sealed)


@given(IDS, st.integers(0, 31), st.integers(0, 2**32 - 1))
def test_handles_and_acknowledgements_read_back(request, index, number):
    kind, content = frames.split_frame(frames.handle_frame(frames.HandleFrame(request, index, number)))
    assert kind is frames.FrameKind.HANDLE
    assert frames.read_handle(content) == frames.HandleFrame(request, index, number)
    kind, content = frames.split_frame(frames.acknowledge_frame(frames.AcknowledgeFrame(request, number)))
    assert kind is frames.FrameKind.ACKNOWLEDGE
    assert frames.read_acknowledge(content) == frames.AcknowledgeFrame(request, number)


@given(st.binary(max_size=400))
@example(b"\x94\xa1\xff")  # a request whose method is no text
@example(b"\x92\xcc\xc8\x91\x92\xa1\xff\xa1a")  # a head, one of whose headers is none
def test_any_other_bytes_are_refused_in_words(content):
    readers = (frames.parse_delivery, frames.read_handle, frames.read_acknowledge, frames.read_request_id)
    for read in (*readers, frames.split_frame, frames.split_answer, decode_request, decode_head):
        with contextlib.suppress(MalformedFrame):
            read(content)


texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)
headers = st.lists(st.tuples(texts, texts), max_size=5).map(tuple)


@pytest.mark.slow
@given(st.sampled_from(["GET", "POST", "DELETE"]), texts.map(lambda text: "/" + text), headers, st.binary(max_size=300))
def test_requests_and_heads_read_back(method, target, fields, body):
    request = HttpRequest(method, target, fields, body)
    assert decode_request(encode_request(request)) == request
    assert decode_head(encode_head(ResponseHead(204, fields))) == ResponseHead(204, fields)


@given(st.lists(st.integers(0, 3000), max_size=60))
def test_a_counter_is_accepted_once_and_none_behind_the_window(counters):
    window, seen = CounterWindow(), set()
    for counter in counters:
        allowed = counter not in seen and counter > max(seen, default=-1) - 1024
        if allowed:
            window.accept(counter)
            seen.add(counter)
        else:
            with pytest.raises(ReplayedFrame):
                window.accept(counter)


@given(COUNTERS, st.integers(0, 5), st.binary(max_size=100), st.integers(0, 1000))
def test_only_the_same_place_opens_what_was_sealed(counter, answer, plain, flip):
    keys = PathKeys(PATH)
    sealer, opener = keys.sealer(counter), keys.opener(counter)
    for number in range(answer):
        first = sealer.seal(b"%d" % number)
        assert opener.open(first) == b"%d" % number
    sealed = sealer.seal(plain)
    changed = bytearray(sealed)
    changed[flip % len(changed)] ^= 1 + flip % 255
    for other in (keys.opener(counter + 1), keys.opener(counter) if answer else opener):
        with pytest.raises(MalformedFrame):
            other.open(sealed if other is not opener else bytes(changed))
    with pytest.raises(MalformedFrame):
        keys.open_frame(counter, sealed)
    sealer, opener = keys.sealer(counter), keys.opener(counter)
    for number in range(answer + 1):
        assert opener.open(sealer.seal(b"%d" % number)) == b"%d" % number


@given(COUNTERS, st.binary(max_size=100))
def test_a_path_that_was_forgotten_and_opened_again_uses_no_nonce_twice(counter, plain):
    one, other = PathKeys(PATH).sealer(counter).seal(plain), PathKeys(PATH).sealer(counter).seal(plain)
    assert one[:16] != other[:16]
    assert one[16:] != other[16:]
    assert PathKeys(PATH).opener(counter).open(one) == PathKeys(PATH).opener(counter).open(other) == plain


async def _nobody(request, responder):
    raise AssertionError("nothing was asked")


def _answers(messages):
    async def run():
        destination = Destination(bytes(32), SECRET, _nobody, clock=lambda: 1000)
        found = []
        for message in messages:
            try:
                async with asyncio.timeout(60):
                    found.append([answer async for answer in destination.answers(message)])
            except OverlayError as error:
                raise AssertionError("it must not get out") from error
        return found, len(destination.table.sessions)

    return asyncio.run(run())


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=300), max_size=20))
def test_a_destination_answers_any_bytes_with_nothing(messages):
    found, sessions = _answers(messages)
    assert all(answers == [(b"", True)] for answers in found)
    assert sessions == 0


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 255), st.binary(max_size=120))
def test_a_destination_survives_any_frame_of_one_who_opened_a_path(kind, content):
    if kind == frames.FrameKind.CLOVE and not content:
        content = b"\0"
    plain = bytes((kind,)) + content
    message = frames.encode_opening(SEALED, 1, PathKeys(PATH).seal_frame(1, plain))
    found, sessions = _answers([message])
    assert len(found[0]) == 1
    assert found[0][0][1]
    assert sessions <= 1
