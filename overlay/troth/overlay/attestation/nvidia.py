"""NVIDIA: the report of a graphics processor in confidential mode, and its certificates up to NVIDIA's device root.

The report is an exchange of SPDM 1.1 (DMTF DSP0274, GET_MEASUREMENTS): the request with its nonce, then the response
with 64 measured blocks, facts about firmware and driver, and a signature over both. NVIDIA's own Python tools pin
other versions of libraries that Troth shares, so the exchange is read here.

Registers: the firmware that holds the key (FWID), driver, VBIOS and project, and the blocks that NVIDIA's reference
manifests name. A few of those have alternatives, so that machines of one kind may have one of a few digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from troth.overlay.attestation.errors import EvidenceExpired, EvidenceForged, EvidenceMalformed
from troth.overlay.attestation.quote import VerifiedQuote, digest_of

_REQUEST_BYTES, _SIGNATURE_BYTES, _NONCE_BYTES = 37, 96, 32
_VERSION, _GET_MEASUREMENTS, _MEASUREMENTS = 0x11, 0xE0, 0x60
_BLOCK = bytes((1, 51, 0, 1, 48, 0))
"""Of each measured block after its index: specification 1, 51 bytes; inside them type 1, 48 bytes (SHA-384)."""
_BLOCKS = frozenset(range(1, 14)) | frozenset(range(22, 42))
"""Indices, from 1, that the manifests of VBIOS (0 to 12) and driver (7, 21 to 40) hold to a value, from 0."""
_DRIVER, _VBIOS, _PROJECT, _FWID = 3, 6, 17, 20
_FACTS = (_DRIVER, _VBIOS, _PROJECT, _FWID)
_DICE = x509.ObjectIdentifier("2.23.133.5.4.1")
_FWID_START = bytes((0x04, 48))
_MOST_CERTIFICATES = 8


def verify_device(report: bytes, certificates: bytes, now: int, root: bytes) -> VerifiedQuote:
    """The device behind a report at this time.

    Args:
        report: request and response of one exchange.
        certificates: PEM, the device's own first, the root last.
        root: SHA-256 of the root certificate's DER.

    Raises EvidenceMalformed, EvidenceForged or EvidenceExpired. Whether NVIDIA has revoked a certificate it says over
    the internet alone (OCSP); that is not asked here.
    """
    chain = _chain(certificates, now, root)
    exchange = _SpdmExchange.read(report)
    _require_signed(chain[0], report)
    if exchange.facts.get(_FWID) != _firmware_of(chain[0]):
        raise EvidenceForged("The device's key belongs to other firmware than its report names")
    facts = (exchange.facts.get(one, b"") for one in _FACTS)
    lengths = b"".join(len(exchange.facts.get(one, b"")).to_bytes(2) for one in _FACTS)
    blocks = (exchange.blocks[index] for index in sorted(_BLOCKS))
    registers = digest_of(b"nvidia", lengths, *facts, *blocks)
    until = min(int(min(one.not_valid_after_utc.timestamp(), 2**53)) for one in chain)
    return VerifiedQuote(registers, report[4 : 4 + _NONCE_BYTES], until)


@dataclass(frozen=True, slots=True)
class _SpdmExchange:
    """Measured blocks by index, and facts by their type."""

    blocks: dict[int, bytes]
    facts: dict[int, bytes]

    @classmethod
    def read(cls, report: bytes) -> _SpdmExchange:
        """Every length is checked against what is there."""
        request, response = report[:_REQUEST_BYTES], report[_REQUEST_BYTES:]
        if len(response) < 8 + _NONCE_BYTES + 2 + _SIGNATURE_BYTES:
            raise EvidenceMalformed("A device's report is longer", len(report))
        if request[:2] != bytes((_VERSION, _GET_MEASUREMENTS)) or response[:2] != bytes((_VERSION, _MEASUREMENTS)):
            raise EvidenceMalformed("This is no exchange of SPDM 1.1 about measurements", report[:2].hex())
        end = 8 + int.from_bytes(response[5:8], "little")
        facts_at = end + _NONCE_BYTES + 2
        facts_end = facts_at + int.from_bytes(response[facts_at - 2 : facts_at], "little")
        if facts_end + _SIGNATURE_BYTES != len(response):
            raise EvidenceMalformed("The parts of a device's report do not add up", len(response))
        return cls(_blocks(response[8:end], response[4]), dict(_facts(response[facts_at:facts_end])))


def _blocks(record: bytes, count: int) -> dict[int, bytes]:
    size = 1 + len(_BLOCK) + 48
    found = {}
    for start in range(0, len(record), size):
        block = record[start : start + size]
        if len(block) != size or block[1 : 1 + len(_BLOCK)] != _BLOCK or block[0] in found:
            raise EvidenceMalformed("A measured block has another form", block[:7].hex())
        found[block[0]] = block[1 + len(_BLOCK) :]
    if len(found) != count or not found.keys() >= _BLOCKS:
        raise EvidenceMalformed("Measured blocks are missing", len(found))
    return found


def _facts(data: bytes) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start < len(data):
        size = int.from_bytes(data[start + 2 : start + 4], "little")
        if start + 4 + size > len(data):
            raise EvidenceMalformed("A fact in a device's report is cut off", start)
        yield int.from_bytes(data[start : start + 2], "little"), data[start + 4 : start + 4 + size]
        start += 4 + size


def _chain(data: bytes, now: int, root: bytes) -> list[x509.Certificate]:
    if data.count(b"-----BEGIN") > _MOST_CERTIFICATES:
        raise EvidenceMalformed(f"A device has at most {_MOST_CERTIFICATES} certificates", data.count(b"-----BEGIN"))
    try:
        chain = x509.load_pem_x509_certificates(data)
        for one, issuer in zip(chain, [*chain[1:], chain[-1]], strict=True):
            one.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
        raise EvidenceForged("The device's certificates do not sign each other", str(error)[:200]) from error
    found = hashlib.sha256(chain[-1].public_bytes(serialization.Encoding.DER)).digest()
    if found != root:
        raise EvidenceForged("The device's certificates do not end at NVIDIA's root", found.hex())
    moment = datetime.fromtimestamp(now, UTC)
    if not all(one.not_valid_before_utc <= moment < one.not_valid_after_utc for one in chain):
        raise EvidenceExpired("A certificate of the device is not valid at this time", str(moment), "Set the clock.")
    for one in chain[1:]:
        _require_authority(one)
    return chain


def _require_authority(one: x509.Certificate) -> None:
    try:
        may = one.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        may = False
    if not may:
        raise EvidenceForged("A certificate of the device stands in another's place", one.subject.rfc4514_string())


def _require_signed(certificate: x509.Certificate, report: bytes) -> None:
    key, signature = certificate.public_key(), report[-_SIGNATURE_BYTES:]
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise EvidenceForged("The device's certificate has another kind of key", type(key).__name__)
    r, s = int.from_bytes(signature[:48]), int.from_bytes(signature[48:])
    try:
        key.verify(encode_dss_signature(r, s), report[:-_SIGNATURE_BYTES], ec.ECDSA(hashes.SHA384()))
    except (InvalidSignature, ValueError) as error:
        raise EvidenceForged("The report is not signed by the device whose certificate came with it") from error


def _firmware_of(certificate: x509.Certificate) -> bytes:
    """FWID: SHA-384 of the firmware for which the device derived its key; the end of its DICE extension."""
    try:
        extension = certificate.extensions.get_extension_for_oid(_DICE).value
    except (x509.ExtensionNotFound, ValueError) as error:
        raise EvidenceMalformed("The device's certificate does not name its firmware") from error
    data = extension.value if isinstance(extension, x509.UnrecognizedExtension) else b""
    if data[-50:-48] != _FWID_START:
        raise EvidenceMalformed("The device's certificate names its firmware in another form")
    return data[-48:]
