"""What is inside captured TLS 1.3 connections whose keys are known (RFC 8446 sections 5 and 7.3; NSS key logs)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from support.anonymity.packets import Connection, Stream

_HANDSHAKE, _APPLICATION = 22, 23
_CLIENT_HELLO, _SERVER_HELLO, _NEW_TICKET, _FINISHED = 1, 2, 4, 20
_SUITES = {
    0x1301: (hashes.SHA256, AESGCM, 16),
    0x1302: (hashes.SHA384, AESGCM, 32),
    0x1303: (hashes.SHA256, ChaCha20Poly1305, 32),
}

KeyLog = dict[tuple[str, bytes], bytes]
"""From (label, client random 32) to a traffic secret."""


class Sealed(NamedTuple):
    """A protected record as it is on the wire, without its header."""

    time: float
    content: bytes


class Opened(NamedTuple):
    """One direction of a connection: application data, and the records that carried it."""

    plain: Stream
    sealed: list[Sealed]


def read_keys(files: Iterable[Path]) -> KeyLog:
    """The secrets of these key logs."""
    keys: KeyLog = {}
    for file in files:
        for line in file.read_text(encoding="ascii").splitlines():
            if not line.startswith("#"):
                label, random, secret = line.split()
                keys[label, bytes.fromhex(random)] = bytes.fromhex(secret)
    return keys


def is_tls(connection: Connection) -> bool:
    """Whether both ends began a TLS handshake."""
    return all(stream.content[:1] == bytes([_HANDSHAKE]) for stream in (connection.forward, connection.backward))


def open_connection(connection: Connection, keys: KeyLog) -> tuple[Opened, Opened]:
    """Both directions, the dialing end's first; fails at a record that does not open under the logged keys."""
    hello, answer = bytes(connection.forward.content[5:]), bytes(connection.backward.content[5:])
    assert (hello[0], answer[0]) == (_CLIENT_HELLO, _SERVER_HELLO)
    random = hello[6:38]
    # type 1 | length 3 | version 2 | random 32 | session id with its length | cipher suite 2
    suite = int.from_bytes(answer[39 + answer[38] :][:2], "big")
    forward, backward = (
        _open(stream, suite, keys[f"{end}_HANDSHAKE_TRAFFIC_SECRET", random], keys[f"{end}_TRAFFIC_SECRET_0", random])
        for end, stream in (("CLIENT", connection.forward), ("SERVER", connection.backward))
    )
    return forward, backward


def _open(stream: Stream, suite: int, handshake: bytes, application: bytes) -> Opened:
    opened = Opened(Stream(), [])
    keys, finished, messages = _Keys(suite, handshake), False, b""
    for kind, header, body, time in _records(stream):
        if kind != _APPLICATION:
            # The hello, and the change of cipher that middleboxes like to see.
            continue
        inner = keys.open(header, body).rstrip(b"\0")
        content, inner_kind = inner[:-1], inner[-1]
        if inner_kind == _APPLICATION:
            assert finished
            opened.plain.append(time, content)
            opened.sealed.append(Sealed(time, body))
        elif inner_kind == _HANDSHAKE and not finished:
            messages += content
            if _last_kind(messages) == _FINISHED:
                keys, finished = _Keys(suite, application), True
        elif inner_kind == _HANDSHAKE:
            assert content[0] == _NEW_TICKET, "keys were updated: this reader does not follow"
    return opened


def _records(stream: Stream) -> Iterable[tuple[int, bytes, bytes, float]]:
    content, offset = bytes(stream.content), 0
    while offset + 5 <= len(content):
        header = content[offset : offset + 5]
        end = offset + 5 + int.from_bytes(header[3:], "big")
        if end > len(content):
            return
        yield header[0], header, content[offset + 5 : end], stream.time_of(end)
        offset = end


def _last_kind(messages: bytes) -> int | None:
    """Kind of the last whole handshake message."""
    kind, offset = None, 0
    while offset + 4 <= len(messages):
        end = offset + 4 + int.from_bytes(messages[offset + 1 : offset + 4], "big")
        if end > len(messages):
            break
        kind, offset = messages[offset], end
    return kind


class _Keys:
    """The record keys of one traffic secret."""

    def __init__(self, suite: int, secret: bytes) -> None:
        algorithm, cipher, length = _SUITES[suite]
        self._cipher = cipher(_expand(algorithm(), secret, b"key", length))
        self._vector = int.from_bytes(_expand(algorithm(), secret, b"iv", 12), "big")
        self._count = 0

    def open(self, header: bytes, body: bytes) -> bytes:
        nonce = (self._vector ^ self._count).to_bytes(12, "big")
        self._count += 1
        return self._cipher.decrypt(nonce, body, header)


def _expand(algorithm: hashes.HashAlgorithm, secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label with an empty context."""
    label = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
    return HKDFExpand(algorithm, length, info).derive(secret)
