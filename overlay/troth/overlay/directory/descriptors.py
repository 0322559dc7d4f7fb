"""What a relay or a destination says of itself to the committee's members, and how it is believed.

Two keys sign: the operator's (EIP-712, so that the entry is its own), and the TLS key that is to answer there. Without
the second a stranger could enter somebody else's relay under an operator of his own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature as WrongSignature
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Meta

from troth.overlay.attestation.errors import EvidenceMalformed
from troth.overlay.attestation.measurement import LONGEST, Attested
from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.directory.codec import KINDS, REGION, attested_of, fields_of, is_literal
from troth.overlay.directory.errors import DescriptorRefused
from troth.overlay.directory.listing import ListedDestination
from troth.protocol import typed_data
from troth.protocol.errors import InvalidSignature
from troth.protocol.struct_kinds import prepared
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32, Uint16, Uint32, Uint64
from troth.transport.identity import TlsIdentity

LARGEST_DESCRIPTOR = 1024
"""Bytes; one has about 400."""
_Kind = TypeVar("_Kind", "SignedRelay", "SignedDestination")
_Hash = Annotated[bytes, Meta(min_length=32, max_length=32)]
_Signature = Annotated[bytes, Meta(min_length=65, max_length=65)]
_Key = Annotated[bytes, Meta(max_length=128)]
_Host = Annotated[str, Meta(min_length=2, max_length=45)]
_Port = Annotated[int, Meta(ge=1, le=65_535)]
_Time = Annotated[int, Meta(ge=0, le=2**53)]


@dataclass(frozen=True, slots=True)
class RelayEntry:
    """EIP-712 message of a relay's operator. `bandwidth` in kilobytes a second, `issued` in Unix seconds."""

    host: str
    port: Uint16
    tls_key_hash: Hash32
    handshake_key: Hash32
    region: str
    bandwidth: Uint32
    issued: Uint64


@dataclass(frozen=True, slots=True)
class DestinationEntry:
    """EIP-712 message of a destination's operator; clients seal to `seal_key` (X25519). `measurement` and `until` (Unix
    seconds) are what members vouched for, empty and 0 for a machine of which nothing is shown."""

    host: str
    port: Uint16
    tls_key_hash: Hash32
    seal_key: Hash32
    kind: str
    issued: Uint64
    measurement: str
    until: Uint64


class _WireEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An entry with its operator's signature, the public TLS key (DER), and that key's signature."""


class SignedRelay(_WireEntry, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A relay's descriptor as it travels."""

    host: _Host
    port: _Port
    tls_key_hash: _Hash
    handshake_key: _Hash
    region: Annotated[str, Meta(max_length=16)]
    bandwidth: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    issued: _Time
    signature: _Signature
    tls_key: _Key
    tls_signature: _Key

    def message(self) -> RelayEntry:
        """What its operator signed."""
        tls_key_hash, handshake_key = Hash32(self.tls_key_hash), Hash32(self.handshake_key)
        return RelayEntry(self.host, self.port, tls_key_hash, handshake_key, self.region, self.bandwidth, self.issued)

    def require_sound(self) -> None:
        """Raise DescriptorRefused where a value cannot stand in a list."""
        if REGION.fullmatch(self.region) is None:
            raise DescriptorRefused("A region is up to 16 of a-z, 0-9 and -", self.region, "Set [directory] region.")


class SignedDestination(_WireEntry, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A destination's descriptor as it travels."""

    host: _Host
    port: _Port
    tls_key_hash: _Hash
    seal_key: _Hash
    kind: Annotated[str, Meta(max_length=16)]
    issued: _Time
    measurement: Annotated[str, Meta(max_length=LONGEST)]
    until: _Time
    signature: _Signature
    tls_key: _Key
    tls_signature: _Key

    def message(self) -> DestinationEntry:
        """What its operator signed."""
        tls_key_hash, seal_key = Hash32(self.tls_key_hash), Hash32(self.seal_key)
        attested = (self.measurement, self.until)
        return DestinationEntry(self.host, self.port, tls_key_hash, seal_key, self.kind, self.issued, *attested)

    @property
    def attested(self) -> Attested | None:
        """What members vouched for; raises EvidenceMalformed."""
        return attested_of(self.measurement, self.until)

    def require_sound(self) -> None:
        """Raise DescriptorRefused where a value cannot stand in a list."""
        if self.kind not in KINDS:
            raise DescriptorRefused(f"A destination is one of {', '.join(KINDS)}", self.kind)
        try:
            attested_of(self.measurement, self.until)
        except EvidenceMalformed as error:
            raise DescriptorRefused(error.what, error.value, error.remedy) from error


@dataclass(frozen=True, slots=True)
class Signer:
    """Both keys of whoever publishes, and the committee's domain. The secret never shows in repr or logs."""

    secret: bytes = field(repr=False)
    identity: TlsIdentity
    domain: Domain

    def relay(self, relay: RelayDescriptor, region: str, bandwidth: int, issued: int) -> SignedRelay:
        """The descriptor of a relay at this time."""
        place = relay.place
        tls_key_hash, handshake_key = Hash32(place.tls_key_hash), Hash32(relay.handshake_key)
        entry = RelayEntry(place.host, place.port, tls_key_hash, handshake_key, region, bandwidth, issued)
        return SignedRelay(
            entry.host,
            entry.port,
            entry.tls_key_hash,
            entry.handshake_key,
            region,
            bandwidth,
            issued,
            *self._signatures(entry),
        )

    def destination(
        self, place: PinnedAddress, seal_key: bytes, kind: str, issued: int, attested: Attested | None = None
    ) -> SignedDestination:
        """The descriptor of a destination at this time."""
        pin, seal, said = Hash32(place.tls_key_hash), Hash32(seal_key), fields_of(attested)
        entry = DestinationEntry(place.host, place.port, pin, seal, kind, issued, *said)
        signatures = self._signatures(entry)
        return SignedDestination(entry.host, entry.port, pin, seal, kind, issued, *said, *signatures)

    def _signatures(self, entry: RelayEntry | DestinationEntry) -> tuple[bytes, bytes, bytes]:
        signature = typed_data.sign(entry, self.domain, self.secret)
        key = serialization.load_pem_private_key(self.identity.key_path.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise DescriptorRefused("The TLS key is of another kind", self.identity.key_path, "It must be P-256.")
        encoded = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        return signature, key.public_key().public_bytes(*encoded), key.sign(signature, ec.ECDSA(hashes.SHA256()))


def encode_descriptor(descriptor: SignedRelay | SignedDestination) -> bytes:
    """The bytes of a descriptor."""
    return msgspec.msgpack.encode(descriptor)


def decode_descriptor(data: bytes, kind: type[_Kind]) -> _Kind:
    """The descriptor in these bytes, its signatures unchecked; raises DescriptorRefused."""
    if len(data) > LARGEST_DESCRIPTOR:
        raise DescriptorRefused(f"A descriptor has at most {LARGEST_DESCRIPTOR} bytes", len(data))
    try:
        found = msgspec.msgpack.decode(data, type=prepared(kind))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DescriptorRefused("The bytes are no descriptor", error) from error
    if msgspec.msgpack.encode(found) != data:
        raise DescriptorRefused("The descriptor is not in its one encoding", len(data))
    return found


def operator_of(descriptor: SignedRelay | SignedDestination, domain: Domain) -> Address:
    """Who signed it, once form, host and both signatures are right; raises DescriptorRefused."""
    if not is_literal(descriptor.host):
        raise DescriptorRefused("A host is an IP address", descriptor.host, "Give the address, not a name.")
    descriptor.require_sound()
    _require_tls_key(descriptor)
    return _signer(descriptor.message(), descriptor.signature, domain)


def require_own_signature(listed: ListedDestination, domain: Domain) -> None:
    """Raise DescriptorRefused unless a listed destination's operator signed place, seal key and kind.

    A client checks this beside the members' signatures: even all members together cannot swap a seal key.
    """
    place = listed.place
    tls_key_hash, seal_key = Hash32(place.tls_key_hash), Hash32(listed.seal_key)
    said = fields_of(listed.attested)
    entry = DestinationEntry(place.host, place.port, tls_key_hash, seal_key, listed.kind, listed.issued, *said)
    signer = _signer(entry, listed.signature, domain)
    if signer != listed.operator:
        raise DescriptorRefused(f"A destination of {listed.operator} was signed by another key", signer)


def _signer(entry: RelayEntry | DestinationEntry, signature: bytes, domain: Domain) -> Address:
    try:
        return typed_data.recover(entry, domain, signature)
    except InvalidSignature as error:
        raise DescriptorRefused("The operator's signature is none", error) from error


def _require_tls_key(descriptor: SignedRelay | SignedDestination) -> None:
    if hashlib.sha256(descriptor.tls_key).digest() != descriptor.tls_key_hash:
        raise DescriptorRefused("The public TLS key is another than its hash says", descriptor.tls_key_hash.hex())
    try:
        key = serialization.load_der_public_key(descriptor.tls_key)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise DescriptorRefused("The TLS key is of another kind", type(key).__name__, "It must be P-256.")
        key.verify(descriptor.tls_signature, descriptor.signature, ec.ECDSA(hashes.SHA256()))
    except (ValueError, UnsupportedAlgorithm, WrongSignature) as error:
        raise DescriptorRefused(
            "The descriptor is not signed by the TLS key that it names", descriptor.tls_key_hash.hex()
        ) from error
