"""What can be wrong with an attestation.

AttestationError (an OverlayError)
 ├─ EvidenceMalformed   bytes that are no evidence, or too many of them
 ├─ EvidenceForged      a signature or a certificate that does not lead to the vendor's root
 ├─ EvidenceExpired     a quote, a certificate or a revocation list whose time is over
 ├─ EvidenceMisbound    a quote for other keys, another party or another nonce
 ├─ PlatformRefused     a machine whose firmware is out of date, revoked, or open to its operator
 └─ MachineUnable       this machine can say nothing of itself
"""

from __future__ import annotations

from troth.transport.errors import OverlayError


class AttestationError(OverlayError):
    """Base of this package's errors."""

    code = "attestation"


class EvidenceMalformed(AttestationError):
    """The bytes are no evidence of this version."""

    code = "evidence_malformed"


class EvidenceForged(AttestationError):
    """Something is not signed by whom it names, up to the vendor's root."""

    code = "evidence_forged"


class EvidenceExpired(AttestationError):
    """Its time is over, or has not begun."""

    code = "evidence_expired"


class EvidenceMisbound(AttestationError):
    """The hardware vouches for other keys, or answers another nonce."""

    code = "evidence_misbound"


class PlatformRefused(AttestationError):
    """The quote is genuine, and the machine is not to be trusted."""

    code = "platform_refused"


class MachineUnable(AttestationError):
    """No quote can be made here."""

    code = "machine_unable"
