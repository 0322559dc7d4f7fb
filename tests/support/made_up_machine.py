"""A confidential machine that does not exist: SEV-SNP reports under a root that is made anew in each run.

No program of Troth's can be told to trust such a root; tests hand it to a member's policy in Python.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import NameOID

from troth.overlay.attestation.binding import Binding
from troth.overlay.attestation.evidence import VERSION, MachineEvidence, SnpEndorsements
from troth.overlay.attestation.policy import PlatformPolicy, Roots, SnpVersion

FIRMWARE = SnpVersion(4, 0, 24, 219)
DAY = timedelta(days=1)
PSS = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
OID = "1.3.6.1.4.1.3704.1."
CHIP = hashlib.sha512(b"a chip that does not exist").digest()
DER = serialization.Encoding.DER


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certificate(subject: str, public: Any, issuer: str, key: Any, *, ca: bool, extra: Mapping[str, bytes]) -> bytes:
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + 100 * DAY)
    )
    if ca:
        built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    for oid, value in extra.items():
        built = built.add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier(OID + oid), value), critical=False)
    return built.sign(key, hashes.SHA384(), rsa_padding=PSS).public_bytes(DER)


@dataclass(frozen=True)
class MadeUpVendor:
    """Root and signing key of a product, and the list of what it revoked."""

    ark_key: Any
    ask_key: Any
    ark: bytes
    ask: bytes
    product: str = "Milan"

    def roots(self) -> Roots:
        return Roots(b"", {self.product: hashlib.sha256(self.ark).digest()}, bytes(32))

    def policy(self, **changes: Any) -> PlatformPolicy:
        return replace(PlatformPolicy(sev_snp={self.product: FIRMWARE}, roots=self.roots()), **changes)

    def revoked(self, *certificates: bytes, ends: timedelta = DAY, key: Any = None) -> bytes:
        now = datetime.now(UTC)
        built = x509.CertificateRevocationListBuilder(name("ARK"), now - 3 * DAY, now + ends)
        for data in certificates:
            serial = x509.load_der_x509_certificate(data).serial_number
            gone = x509.RevokedCertificateBuilder(serial, now - 2 * DAY).build()
            built = built.add_revoked_certificate(gone)
        return built.sign(key or self.ark_key, hashes.SHA384(), rsa_padding=PSS).public_bytes(DER)


@lru_cache
def made_up_vendor(_number: int = 0) -> MadeUpVendor:
    ark_key = rsa.generate_private_key(65537, 2048)
    ask_key = rsa.generate_private_key(65537, 2048)
    ark = certificate("ARK", ark_key.public_key(), "ARK", ark_key, ca=True, extra={})
    ask = certificate("ASK", ask_key.public_key(), "ARK", ark_key, ca=True, extra={})
    return MadeUpVendor(ark_key, ask_key, ark, ask)


@dataclass(frozen=True)
class MadeUpMachine:
    """A guest on a chip; every field can be changed for a test."""

    vendor: MadeUpVendor = field(default_factory=made_up_vendor)
    firmware: SnpVersion = FIRMWARE
    certified: SnpVersion = FIRMWARE
    policy: int = 0x3001F
    image: bytes = b"an image"
    chip: bytes = CHIP
    product: str = "Milan-B0"
    key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP384R1()))

    def report(self, bound: bytes) -> bytes:
        """1,184 bytes that the chip's key signs."""
        body = bytearray(0x2A0)
        struct.pack_into("<IIQ", body, 0, 3, 1, self.policy)
        struct.pack_into("<I", body, 0x34, 1)
        body[0x50:0x90] = bound
        body[0x90:0xC0] = hashlib.sha384(self.image).digest()
        tcb = self.firmware
        body[0x180:0x188] = bytes((tcb.bootloader, tcb.tee, 0, 0, 0, 0, tcb.snp, tcb.microcode))
        body[0x1A0:0x1E0] = self.chip
        r, s = decode_dss_signature(self.key.sign(bytes(body), ec.ECDSA(hashes.SHA384())))
        return bytes(body) + r.to_bytes(72, "little") + s.to_bytes(72, "little") + bytes(512 - 144)

    def vcek(self) -> bytes:
        def number(value: int) -> bytes:
            data = value.to_bytes(value.bit_length() // 8 + 1)
            return bytes((2, len(data))) + data

        extra = {"2": bytes((0x16, len(self.product))) + self.product.encode(), "4": CHIP}
        parts = zip(("3.1", "3.2", "3.3", "3.8"), self.certified, strict=True)
        extra |= {oid: number(value) for oid, value in parts}
        public, vendor = self.key.public_key(), self.vendor
        return certificate("VCEK", public, "ASK", vendor.ask_key, ca=False, extra=extra)

    def endorsements(self, **changes: Any) -> SnpEndorsements:
        vendor = self.vendor
        made = SnpEndorsements(self.vcek(), vendor.ask, vendor.ark, vendor.revoked())
        return msgspec.structs.replace(made, **changes)

    def evidence_of(self, binding: Binding, **changes: Any) -> MachineEvidence:
        """What it says of itself; ``changes`` are of the endorsements."""
        endorsements = msgspec.msgpack.encode(self.endorsements(**changes))
        return MachineEvidence(VERSION, "sev-snp", self.report(binding.report_data()), endorsements, [])

    async def evidence(self, binding: Binding) -> MachineEvidence:
        """As a machine's own hardware does it."""
        return self.evidence_of(binding)


def moment() -> int:
    return int(time.time())


def nonce() -> bytes:
    return os.urandom(32)
