"""The session format of docs/reference/sessions.md, held by vectors: a change of them is a change of the version.

Openings are encrypted with a fresh key each time, so the vector's is only opened. All else is computed anew here from
the page alone, with nothing of `troth.overlay.sessions` but the parsers.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from troth.overlay.sessions import frames
from troth.overlay.sessions.frames import PathKeys
from troth.overlay.sessions.messages import HttpRequest, ResponseHead, encode_head, encode_request, reply_id
from troth.overlay.sessions.opening import open_sealed
from troth.overlay.sida import Threshold

VECTOR = {
    name: bytes.fromhex(value) if isinstance(value, str) else value
    for name, value in json.loads((Path(__file__).parent / "data" / "session_vectors.json").read_text()).items()
}


@pytest.fixture
def opening():
    secret = X25519PrivateKey.from_private_bytes(VECTOR["seal_secret"])
    return open_sealed(VECTOR["opening"], secret, VECTOR["destination"])


def test_the_opening_says_what_was_sealed(opening):
    assert opening.session_secret == VECTOR["session_secret"]
    assert opening.path_secret == VECTOR["path_secret"]
    assert opening.path_id == VECTOR["path_id"]
    assert opening.issued == VECTOR["issued"]
    assert opening.threshold == Threshold(4, 3)


def test_keys_frames_and_answers_are_the_page_s(opening):
    secrets = VECTOR["path_secret"] + VECTOR["session_secret"]
    derived = HKDF(SHA256(), 64, b"troth session 1", VECTOR["path_id"]).derive(secrets)
    counter = VECTOR["counter"].to_bytes(8, "big")
    frame = AESGCM(derived[:32]).encrypt(bytes(4) + counter, VECTOR["frame"], None)
    salt = VECTOR["answer_salt"]
    cipher = AESGCM(HKDF(SHA256(), 32, salt, b"troth session 1").derive(derived[32:]))
    first = salt + cipher.encrypt(bytes(4) + counter, VECTOR["first_answer"], None)
    second = cipher.encrypt(bytes(3) + b"\x01" + counter, VECTOR["second_answer"], None)
    assert frame == VECTOR["sealed_frame"]
    assert (first, second) == (VECTOR["sealed_first_answer"], VECTOR["sealed_second_answer"])
    keys = PathKeys(opening)
    assert keys.open_frame(VECTOR["counter"], frame) == VECTOR["frame"]
    opener = keys.opener(VECTOR["counter"])
    assert [opener.open(first), opener.open(second)] == [VECTOR["first_answer"], VECTOR["second_answer"]]


def test_deliveries_are_the_page_s(opening):
    counter, sealed = VECTOR["counter"].to_bytes(8, "big"), VECTOR["sealed_frame"]
    assert VECTOR["first_delivery"] == b"\x01\x01" + VECTOR["opening"] + counter + sealed
    assert VECTOR["later_delivery"] == b"\x01\x02" + VECTOR["path_id"] + counter + sealed
    first, later = (frames.parse_delivery(VECTOR[name]) for name in ("first_delivery", "later_delivery"))
    assert (first.opening, first.counter, first.sealed) == (VECTOR["opening"], VECTOR["counter"], sealed)
    assert (later.path_id, later.counter, later.sealed) == (opening.path_id, VECTOR["counter"], sealed)


def test_frames_and_messages_are_frozen():
    request = VECTOR["request_id"]
    assert frames.handle_frame(frames.HandleFrame(request, 2, 7)) == VECTOR["handle"]
    assert frames.acknowledge_frame(frames.AcknowledgeFrame(request, 9)) == VECTOR["acknowledge"]
    assert frames.cancel_frame(request) == VECTOR["cancel"]
    assert reply_id(request) == VECTOR["reply_id"]
    asked = HttpRequest("POST", "/v1/orders", (("accept", "application/json"),), b"{}")
    assert encode_request(asked) == VECTOR["request"]
    assert encode_head(ResponseHead(200, (("content-type", "text/plain"),))) == VECTOR["head"]
