"""Agreeing with one relay on the keys of its layer: ntor (Goldberg, Stebila, Ustaoglu 2012) with our names.

    CREATE   version 1 | relay name 32 | client's ephemeral X 32
    CREATED  relay's ephemeral Y 32 | proof 32

Both compute X25519(x, Y) and X25519(x, B), where B is the relay's registered key. The keys and the proof come from
HKDF-SHA256 over both, salted with the hash of everything said: protocol, name, B, X, Y. Only who knows b or x can
compute them; once y and x are gone, b does not help either. The client stays anonymous: it has no key here.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from troth.overlay.cells.onion import KEY, HopKeys
from troth.overlay.circuits.descriptors import RelayDescriptor
from troth.transport.errors import HandshakeRefused

VERSION = 1
PROTOCOL = b"troth circuit 1: ntor, X25519, HKDF-SHA256, AES-256-GCM"
REQUEST_BYTES = 1 + 2 * KEY
REPLY_BYTES = 2 * KEY


@dataclass(frozen=True, slots=True)
class ClientShare:
    """The client's half until the answer comes; it is dropped with the secret in it."""

    relay: RelayDescriptor
    secret: X25519PrivateKey = field(repr=False)

    @classmethod
    def new(cls, relay: RelayDescriptor) -> ClientShare:
        """A fresh ephemeral key for one set-up with `relay`."""
        return cls(relay, X25519PrivateKey.generate())

    def request(self) -> bytes:
        """65 bytes for CREATE or EXTEND."""
        return bytes((VERSION,)) + self.relay.name + self._public()

    def finish(self, reply: bytes) -> HopKeys:
        """The keys of the hop that answered; raises HandshakeRefused unless it holds the registered key."""
        if len(reply) < REPLY_BYTES:
            raise HandshakeRefused("The answer to a set-up is too short", len(reply))
        theirs, proof = reply[:KEY], reply[KEY:REPLY_BYTES]
        shared = _exchange(self.secret, theirs) + _exchange(self.secret, self.relay.handshake_key)
        keys, expected = derive(shared, self.relay.name, self.relay.handshake_key, self._public(), theirs)
        if not hmac.compare_digest(proof, expected):
            raise HandshakeRefused("The relay does not hold its registered key", self.relay.name.hex())
        return keys

    def _public(self) -> bytes:
        return self.secret.public_key().public_bytes_raw()


@dataclass(frozen=True, slots=True)
class RelayIdentity:
    """A relay's long-term X25519 key, bound to its name (the SHA-256 of its TLS key)."""

    name: bytes
    secret: X25519PrivateKey = field(repr=False)
    public: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "public", self.secret.public_key().public_bytes_raw())

    def answer(self, request: bytes) -> tuple[bytes, HopKeys]:
        """(content of CREATED, keys of the new layer); raises HandshakeRefused."""
        theirs = self.share_in(request)
        ephemeral = X25519PrivateKey.generate()
        ours = ephemeral.public_key().public_bytes_raw()
        shared = _exchange(ephemeral, theirs) + _exchange(self.secret, theirs)
        keys, proof = derive(shared, self.name, self.public, theirs, ours)
        return ours + proof, keys

    def share_in(self, request: bytes) -> bytes:
        """The client's ephemeral key in a request, which must be for us; raises HandshakeRefused."""
        if len(request) < REQUEST_BYTES or request[0] != VERSION:
            raise HandshakeRefused("A set-up of another version", request[:1].hex(), "Both ends need version 1.")
        if not hmac.compare_digest(request[1 : 1 + KEY], self.name):
            raise HandshakeRefused("A set-up that is for another relay", request[1 : 1 + KEY].hex())
        return request[1 + KEY : REQUEST_BYTES]


def derive(shared: bytes, name: bytes, relay_key: bytes, client: bytes, relay: bytes) -> tuple[HopKeys, bytes]:
    """(layer keys, 32-byte proof) from both shared secrets and everything that was said."""
    transcript = hashlib.sha256(PROTOCOL + name + relay_key + client + relay).digest()
    stream = HKDF(hashes.SHA256(), 5 * KEY, salt=transcript, info=PROTOCOL).derive(shared)
    keys = [stream[start : start + KEY] for start in range(0, 5 * KEY, KEY)]
    return HopKeys(*keys[:4]), keys[4]


def _exchange(secret: X25519PrivateKey, public: bytes) -> bytes:
    try:
        return secret.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        # A point of small order would make the secret known to everybody (RFC 7748 section 6.1).
        raise HandshakeRefused("A public key of small order", public.hex()) from error
