"""AMD SEV-SNP: an attestation report, the chip's certificate chain, and AMD's list of revoked ones.

Source: SEV Secure Nested Paging Firmware ABI Specification (document 56860), table "ATTESTATION_REPORT", and the VCEK
Certificate and KDS Interface Specification (document 57230). No library for Python is kept well enough, and the check
is short: one ECDSA signature, and three certificates up to a root whose hash this program holds.

Registers: policy, guest SVN, family, image, VMPL, measurement, host data, digests of the ID key and of its author's.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.utils import CryptographyDeprecationWarning

from troth.overlay.attestation.errors import EvidenceExpired, EvidenceForged, EvidenceMalformed, PlatformRefused
from troth.overlay.attestation.evidence import SnpEndorsements
from troth.overlay.attestation.policy import SnpVersion
from troth.overlay.attestation.quote import VerifiedQuote, digest_of

REPORT_BYTES, _SIGNED_BYTES = 0x4A0, 0x2A0
_ECDSA_P384_SHA384 = 1
_MIGRATES, _DEBUGGED = 1 << 18, 1 << 19
"""Bits of the guest's policy: its pages may move to another machine; its host may read them."""
_VERSIONS = range(2, 6)
_OID = "1.3.6.1.4.1.3704.1."
_PRODUCT, _CHIP = _OID + "2", _OID + "4"
_PARTS = (_OID + "3.1", _OID + "3.2", _OID + "3.3", _OID + "3.8")
_INTEGER, _OCTETS, _IA5 = 0x02, 0x04, 0x16


@dataclass(frozen=True, slots=True)
class SnpReport:
    """A report by its fields, once its length and version are right."""

    data: bytes

    @classmethod
    def read(cls, data: bytes) -> SnpReport:
        """A report; raises EvidenceMalformed."""
        if len(data) != REPORT_BYTES:
            raise EvidenceMalformed(f"A SEV-SNP report has {REPORT_BYTES} bytes", len(data), "Send it as it was made.")
        report = cls(data)
        if report._number(0x00, 4) not in _VERSIONS or report._number(0x34, 4) != _ECDSA_P384_SHA384:
            raise EvidenceMalformed("This version of SEV-SNP reports is not known", data[:4].hex())
        return report

    @property
    def policy(self) -> int:
        """The guest's policy (64 bits)."""
        return self._number(0x08, 8)

    @property
    def bound(self) -> bytes:
        """REPORT_DATA, 64 bytes."""
        return self.data[0x50:0x90]

    @property
    def chip(self) -> bytes:
        """CHIP_ID, 64 bytes; zeros where the host hides it."""
        return self.data[0x1A0:0x1E0]

    @property
    def firmware(self) -> SnpVersion:
        """REPORTED_TCB: the version for which the chip's key was derived."""
        tcb = self.data[0x180:0x188]
        return SnpVersion(tcb[0], tcb[1], tcb[6], tcb[7])

    @property
    def registers(self) -> bytes:
        """32 bytes over what was measured of the guest."""
        guest, keys = self.data[0x04:0x34], self.data[0xE0:0x140]
        return digest_of(b"sev-snp", guest, self.data[0x90:0xC0], self.data[0xC0:0xE0], keys)

    def require_signed(self, certificate: x509.Certificate) -> None:
        """Raise EvidenceForged unless the chip's key signed it: r and s, 72 bytes each, little-endian."""
        key = certificate.public_key()
        r, s = self._number(_SIGNED_BYTES, 72), self._number(_SIGNED_BYTES + 72, 72)
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
            raise EvidenceForged("The chip's certificate has another kind of key", type(key).__name__)
        try:
            key.verify(encode_dss_signature(r, s), self.data[:_SIGNED_BYTES], ec.ECDSA(hashes.SHA384()))
        except (InvalidSignature, ValueError) as error:
            raise EvidenceForged("The report is not signed by the chip whose certificate came with it") from error

    def _number(self, start: int, size: int) -> int:
        return int.from_bytes(self.data[start : start + size], "little")


def verify_snp(
    data: bytes,
    endorsements: SnpEndorsements,
    now: int,
    roots: Mapping[str, bytes],
    oldest: Mapping[str, SnpVersion],
) -> VerifiedQuote:
    """The guest behind a report at this time.

    Args:
        roots: SHA-256 of each product's root certificate.
        oldest: each product's oldest firmware; others are refused.

    Raises:
        EvidenceMalformed, EvidenceForged: another length, a broken chain, a signature that does not fit.
        EvidenceExpired: a certificate or the list of revoked ones.
        PlatformRefused: a revoked chain, firmware that is too old, a guest that can be debugged or moved.
    """
    report = SnpReport.read(data)
    chain = _Chain.read(endorsements, now, roots)
    report.require_signed(chain.vcek)
    _require_chip(report, chain.vcek)
    until = chain.require_unrevoked(endorsements.revoked, now)
    _require_firmware(report.firmware, chain.product, oldest)
    if report.policy & (_DEBUGGED | _MIGRATES):
        what = "The guest's policy lets its host read it, or move it"
        raise PlatformRefused(what, hex(report.policy), "Launch it with neither of these bits.")
    return VerifiedQuote(report.registers, report.bound, min(until, chain.until))


@dataclass(frozen=True, slots=True)
class _Chain:
    """VCEK, ASK and ARK, each signed by the next, the last one known."""

    vcek: x509.Certificate
    ask: x509.Certificate
    ark: x509.Certificate
    product: str

    @classmethod
    def read(cls, endorsements: SnpEndorsements, now: int, roots: Mapping[str, bytes]) -> _Chain:
        vcek, ask, ark = map(_certificate, (endorsements.vcek, endorsements.ask, endorsements.ark))
        found = hashlib.sha256(ark.public_bytes(serialization.Encoding.DER)).digest()
        products = [name for name, root in roots.items() if root == found]
        if not products:
            raise EvidenceForged("The chain does not end at a root of AMD's", found.hex(), "Send VCEK, ASK and ARK.")
        for one, issuer in ((vcek, ask), (ask, ark), (ark, ark)):
            _require_issued(one, issuer)
            _require_time(one, now)
        if _authority(ask) is not True or _authority(ark) is not True or _authority(vcek):
            raise EvidenceForged("A certificate of the chain stands in another's place")
        product = _value(vcek, _PRODUCT, _IA5).decode("ascii", "replace")
        if product.partition("-")[0] != products[0]:
            raise EvidenceForged("The chip is of another product than its root", product[:32])
        return cls(vcek, ask, ark, products[0])

    @property
    def until(self) -> int:
        return min(int(one.not_valid_after_utc.timestamp()) for one in (self.vcek, self.ask, self.ark))

    def require_unrevoked(self, data: bytes, now: int) -> int:
        """When AMD's list ends; raises EvidenceForged, EvidenceExpired, or PlatformRefused where it names the chain."""
        try:
            listed = x509.load_der_x509_crl(data)
            key = self.ark.public_key()
            signed = isinstance(key, rsa.RSAPublicKey) and listed.is_signature_valid(key)
            ends = listed.next_update_utc
            numbers = (self.ask.serial_number, self.ark.serial_number)
            revoked = [one for one in numbers if listed.get_revoked_certificate_by_serial_number(one) is not None]
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise EvidenceForged("There is no list of AMD's revoked certificates", str(error)[:200]) from error
        if not signed or listed.issuer != self.ark.subject:
            raise EvidenceForged("The list of revoked certificates is not signed by AMD's root", self.product)
        if ends is None or not listed.last_update_utc <= _moment(now) < ends:
            remedy = "Fetch AMD's newest list."
            raise EvidenceExpired("The list of revoked certificates has ended", str(ends), remedy)
        if revoked:
            raise PlatformRefused("AMD has revoked a certificate of this chain", revoked[0], "Use another machine.")
        return int(ends.timestamp())


def _require_chip(report: SnpReport, vcek: x509.Certificate) -> None:
    """The certificate is this chip's, at the version that the report names."""
    if _value(vcek, _CHIP, None) != report.chip or not any(report.chip):
        what = "The report is of another chip than its certificate, or its host hides which"
        raise EvidenceForged(what, report.chip[:8].hex(), "Launch with the chip's identity shown.")
    certified = SnpVersion(*(int.from_bytes(_value(vcek, part, _INTEGER)) for part in _PARTS))
    if certified != report.firmware:
        raise EvidenceForged("The report is of another firmware than its certificate", tuple(report.firmware))


def _require_firmware(found: SnpVersion, product: str, oldest: Mapping[str, SnpVersion]) -> None:
    least = oldest.get(product)
    if least is None:
        raise PlatformRefused("This member vouches for no such product", product, "Name its oldest firmware.")
    if any(have < want for have, want in zip(found, least, strict=True)):
        what = f"The platform's firmware is older than {tuple(least)}"
        raise PlatformRefused(what, tuple(found), "Update it, and commit the new version.")


def _certificate(data: bytes) -> x509.Certificate:
    try:
        with warnings.catch_warnings():
            # AMD gives every chip's certificate the serial number 0.
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)
            return x509.load_der_x509_certificate(data)
    except ValueError as error:
        raise EvidenceMalformed("A certificate cannot be read", str(error)[:200]) from error


def _require_issued(one: x509.Certificate, issuer: x509.Certificate) -> None:
    try:
        one.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
        raise EvidenceForged("A certificate is not signed by the next one of its chain", str(error)[:200]) from error


def _require_time(one: x509.Certificate, now: int) -> None:
    if not one.not_valid_before_utc <= _moment(now) < one.not_valid_after_utc:
        raise EvidenceExpired("A certificate is not valid at this time", str(one.not_valid_after_utc), "Set the clock.")


def _authority(one: x509.Certificate) -> bool:
    """Whether it may issue others."""
    try:
        return one.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False
    except ValueError as error:
        raise EvidenceMalformed("A certificate cannot be read", str(error)[:200]) from error


def _value(certificate: x509.Certificate, oid: str, tag: int | None) -> bytes:
    """The content of one of AMD's extensions: a short DER value of this tag, or the bare bytes."""
    try:
        extension = certificate.extensions.get_extension_for_oid(x509.ObjectIdentifier(oid)).value
    except (x509.ExtensionNotFound, ValueError) as error:
        raise EvidenceMalformed("The chip's certificate lacks a field", oid) from error
    data = extension.value if isinstance(extension, x509.UnrecognizedExtension) else b""
    if tag is None:
        # Older certificates hold the chip's identity bare, newer ones as an octet string.
        return data[2:] if len(data) == 66 and data[:2] == bytes((_OCTETS, 64)) else data
    if len(data) < 3 or data[0] != tag or data[1] != len(data) - 2:
        raise EvidenceMalformed("A field of the chip's certificate has another form", oid)
    return data[2:]


def _moment(now: int) -> datetime:
    return datetime.fromtimestamp(now, UTC)
