"""Refusals as they come from a peer that means harm."""

from __future__ import annotations

from troth.protocol.wire import Failure
from troth.transport.errors import decode_failure, remote_failure


def test_a_refusal_nested_too_deeply_is_none() -> None:
    assert decode_failure(b'{"x":' + b"[" * 200_000) is None


def test_a_refusal_that_is_no_text_is_none() -> None:
    said = b'{"type": "Failure", "code": "busy", "message": "\xff", "remedy": ""}'
    assert decode_failure(said) is None
    assert decode_failure(said.replace(b"\xff", b"no")) == Failure("busy", "no", "")


def test_a_peers_words_cannot_steer_a_terminal_or_forge_a_log_line() -> None:
    error = remote_failure("https://x", Failure("busy", "\x1b[2Jgone\nINFO all is well", "\x07wait"))
    assert not any(ord(character) < 32 for character in str(error))
