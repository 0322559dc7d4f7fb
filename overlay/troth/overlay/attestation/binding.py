"""What a quote speaks for: one party's keys, one committee, and one nonce of one member.

The hardware signs 64 bytes that its guest chooses. Here they are a digest of all that follows, so that a quote is worth
nothing for another seal key, another TLS key, another operator, another network, or a second time.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from troth.protocol.typed_data import Domain
from troth.protocol.types import address_to_bytes

NONCE_BYTES = 32
_TAG = b"troth attestation 1\x00"
_DOMAIN = struct.Struct(">Q20s")


@dataclass(frozen=True, slots=True)
class Binding:
    """Who is vouched for, to whom.

    Args:
        nonce: 32 bytes that a member gave, never used before.
        tls_key_hash: SHA-256 of the TLS key at the party's overlay entry and at its endpoint on chain.
        seal_key: X25519 key to which clients seal, 32 bytes.
        operator: the party's operator on chain.
        kind: "scheduler" or "node".
        domain: the committee's.
    """

    nonce: bytes
    tls_key_hash: bytes
    seal_key: bytes
    operator: str
    kind: str
    domain: Domain

    def report_data(self) -> bytes:
        """The 64 bytes for the processor to sign (SHA-512); every part has a fixed length or comes last."""
        place = _DOMAIN.pack(self.domain.chain_id, address_to_bytes(self.domain.contract))
        keys = self.nonce + self.tls_key_hash + self.seal_key + address_to_bytes(self.operator)
        return hashlib.sha512(_TAG + place + keys + self.kind.encode()).digest()

    def device_nonce(self) -> bytes:
        """The 32 bytes for a graphics processor to sign: they follow from the processor's."""
        return hashlib.sha256(_TAG + self.report_data()).digest()
