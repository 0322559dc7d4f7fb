"""TLS 1.3 contexts: a server's, and a client's that accepts exactly one public key.

The pin is compared inside the handshake, so that not one byte of a request leaves for a stranger. Certificate
authorities, names and dates play no part; the chain says whose key is expected.
"""

from __future__ import annotations

import hmac
import ssl

from troth.transport.errors import WrongTlsKey
from troth.transport.identity import TlsIdentity, spki_sha256


class PinMismatch(ssl.SSLError):
    """Raised within the handshake; event loops only let SSLError through, see `as_wrong_tls_key`."""

    def __init__(self, expected: bytes, found: bytes) -> None:
        super().__init__(f"pinned {expected.hex()}, shown {found.hex()}")
        self.expected = expected
        self.found = found


def server_context(identity: TlsIdentity) -> ssl.SSLContext:
    """The context of an endpoint: TLS 1.3 only, no client certificates (senders sign their envelopes instead)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(identity.certificate_path, identity.key_path)
    return context


def pinned_context(expected: bytes) -> ssl.SSLContext:
    """A client context whose handshake fails with PinMismatch unless the peer's SPKI SHA-256 equals `expected`."""
    if len(expected) != 32:
        raise WrongTlsKey("A pin is 32 bytes", expected.hex(), "Read it from the registration event.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslobject_class = _pinned_object(expected)
    context.sslsocket_class = _pinned_socket(expected)
    return context


def as_wrong_tls_key(error: BaseException, endpoint: str) -> WrongTlsKey | None:
    """The WrongTlsKey behind an exception of a client library, or None if the cause is another one."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, PinMismatch):
            return WrongTlsKey(
                f"{endpoint} shows the TLS key {seen.found.hex()}, registered is {seen.expected.hex()}",
                remedy="Send nothing: the endpoint moved without updating its registration, or is impersonated.",
            )
        seen = seen.__cause__ or seen.__context__
    return None


def _compare(expected: bytes, certificate: bytes | None) -> None:
    found = spki_sha256(certificate) if certificate else bytes(32)
    if not hmac.compare_digest(expected, found):
        raise PinMismatch(expected, found)


def _pinned_object(expected: bytes) -> type[ssl.SSLObject]:
    class PinnedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            _compare(expected, self.getpeercert(True))

    return PinnedObject


def _pinned_socket(expected: bytes) -> type[ssl.SSLSocket]:
    class PinnedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            _compare(expected, self.getpeercert(True))

    return PinnedSocket
