"""Who a party is on the wire: the TLS identity of its endpoint, and the operator key that signs for it.

Peers do not ask a certificate authority. They compare the SHA-256 of the certificate's SubjectPublicKeyInfo
(RFC 5280 section 4.1.2.7, pinned as in RFC 7469 section 2.4) with the value registered on chain. So the certificate's
name and dates carry no meaning, and a key keeps its pin when the certificate is renewed.
"""

from __future__ import annotations

import datetime
import hashlib
import stat
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from troth.chain.new_files import create_file, remove_unfinished
from troth.protocol import typed_data
from troth.protocol.types import Address
from troth.transport.errors import IdentityUnusable

KEY_FILE = "tls-key.pem"
CERTIFICATE_FILE = "tls-certificate.pem"
_VALIDITY = datetime.timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class TlsIdentity:
    """A key pair on disk: where its files are, and the 32-byte pin that others hold."""

    key_path: Path
    certificate_path: Path
    spki_sha256: bytes


def spki_sha256(certificate_der: bytes) -> bytes:
    """SHA-256 of the SubjectPublicKeyInfo of a DER certificate, 32 bytes."""
    certificate = x509.load_der_x509_certificate(certificate_der)
    return hashlib.sha256(
        certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    ).digest()


def create_identity(folder: Path) -> TlsIdentity:
    """Make a key and certificate in `folder`. An existing key is never overwritten (raises IdentityUnusable)."""
    key_path, certificate_path = folder / KEY_FILE, folder / CERTIFICATE_FILE
    for path in (key_path, certificate_path):
        if path.exists():
            raise IdentityUnusable(
                "A TLS identity is already there", path, "Load it, or move it away if its pin is no longer registered."
            )
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    create_file(
        key_path,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
    try:
        create_file(certificate_path, _self_signed(key).public_bytes(serialization.Encoding.PEM))
    except OSError:
        # A key without its certificate could neither be used nor made again.
        key_path.unlink()
        raise
    return load_identity(folder)


def load_identity(folder: Path) -> TlsIdentity:
    """Read the identity in `folder`; raises IdentityUnusable naming the file and the fix."""
    key_path, certificate_path = folder / KEY_FILE, folder / CERTIFICATE_FILE
    for path in (key_path, certificate_path):
        remove_unfinished(path)
    try:
        mode = stat.S_IMODE(key_path.stat().st_mode)
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
    except (OSError, ValueError) as error:
        raise IdentityUnusable("The TLS identity cannot be read", error, f"Create one in {folder}.") from error
    if mode & 0o077:
        raise IdentityUnusable(
            f"The TLS key file is readable by others (mode {mode:04o})", key_path, f"Run: chmod 600 {key_path}"
        )
    if key.public_key() != certificate.public_key():
        raise IdentityUnusable(
            "The certificate belongs to another key", certificate_path, "Restore the pair that belongs together."
        )
    der = certificate.public_bytes(serialization.Encoding.DER)
    return TlsIdentity(key_path, certificate_path, spki_sha256(der))


def load_or_create_identity(folder: Path) -> TlsIdentity:
    """The identity in `folder`, made on the first call; a key that has no certificate, as after a kill, gets one."""
    key_path, certificate_path = folder / KEY_FILE, folder / CERTIFICATE_FILE
    if not key_path.exists():
        return create_identity(folder)
    if not certificate_path.exists():
        key = _key_in(key_path)
        create_file(certificate_path, _self_signed(key).public_bytes(serialization.Encoding.PEM))
    return load_identity(folder)


def _key_in(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise IdentityUnusable("The TLS key cannot be read", error, f"Restore {path}, or move it away.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise IdentityUnusable("This is no key of an elliptic curve", path, "Restore its certificate, too.")
    return key


def _self_signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "troth endpoint")])
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator key bound to the EIP-712 domain of one Troth contract. The secret never shows in repr or logs.

    Args:
        secret: 32-byte secp256k1 key.
        domain: chain id and contract that every signature is for.
        address: the operator address, derived from the secret.
    """

    secret: bytes = field(repr=False)
    domain: typed_data.Domain
    address: Address = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "address", typed_data.address_of(self.secret))

    def sign(self, message: object) -> bytes:
        """65-byte signature over the EIP-712 digest of a message."""
        return typed_data.sign(message, self.domain, self.secret)
