"""Intel TDX: a quote with its collateral, verified by dcap-qvl up to Intel's SGX root.

The library checks the quote's signature, the quoting enclave, the chain of the processor's key, both revocation lists,
and Intel's signed words on which firmware is up to date (DCAP quote format 4 and 5). What it found is judged here: only
a platform that is up to date, and only a guest that its host cannot debug.

Registers: attributes, XFAM, MRTD, MRCONFIGID, MROWNER, MROWNERCONFIG, RTMR0 to RTMR3, MRSERVICETD.
"""

from __future__ import annotations

from typing import Any, Final

import dcap_qvl
import msgspec

from troth.overlay.attestation.errors import (
    AttestationError,
    EvidenceExpired,
    EvidenceForged,
    EvidenceMalformed,
    PlatformRefused,
)
from troth.overlay.attestation.quote import VerifiedQuote, digest_of
from troth.protocol.struct_kinds import prepared

UP_TO_DATE: Final = "UpToDate"
_MEASURED = ("td_attributes", "xfam", "mr_td", "mr_config_id", "mr_owner", "mr_owner_config")
_RUNTIME = ("rt_mr0", "rt_mr1", "rt_mr2", "rt_mr3")
_NO_SERVICE = bytes(48)


class _Status(msgspec.Struct, frozen=True):
    status: str


class _Claims(msgspec.Struct, frozen=True):
    """The part of the library's claims (version 1) that is judged here; dates are Unix seconds."""

    claims_version: int
    tcb: _Status
    earliest_expiration_date: int
    qe_iden_earliest_expiration_date: int


def verify_tdx(quote: bytes, collateral: bytes, now: int, root: bytes = b"") -> VerifiedQuote:
    """The guest behind a quote at this time.

    Args:
        quote: as the guest's firmware made it.
        collateral: Intel's signed words about the platform, JSON in UTF-8 (the library's form).
        root: another root certificate than Intel's, DER; in tests alone.

    Raises:
        EvidenceMalformed, EvidenceForged, EvidenceExpired: as the library says.
        PlatformRefused: firmware that is not up to date or revoked, or a guest that can be debugged.
    """
    claims = _claims(quote, collateral, now, root)
    if claims.tcb.status != UP_TO_DATE:
        remedy = "Install the firmware that Intel names for this platform."
        raise PlatformRefused("The platform's firmware is not up to date", claims.tcb.status, remedy)
    report = dcap_qvl.parse_quote(quote).report
    if report.td_attributes[0] != 0:
        # Bits 0 to 7 (TUD): with any of them the host can look into the guest (TDX module specification, ATTRIBUTES).
        raise PlatformRefused("The guest can be debugged by its host", report.td_attributes.hex(), "Start it without.")
    service = getattr(report, "mr_service_td", _NO_SERVICE)
    registers = digest_of(b"tdx", *(getattr(report, name) for name in (*_MEASURED, *_RUNTIME)), service)
    until = min(claims.earliest_expiration_date, claims.qe_iden_earliest_expiration_date)
    return VerifiedQuote(registers, report.report_data, until)


def _claims(quote: bytes, collateral: bytes, now: int, root: bytes) -> _Claims:
    try:
        if not dcap_qvl.parse_quote(quote).is_tdx():
            raise EvidenceMalformed("This is a quote of an enclave, not of a TDX guest", None, "Quote the guest.")
        words = dcap_qvl.QuoteCollateralV3.from_json(collateral.decode())
        verifier = dcap_qvl.QuoteVerifier(root or None)
        policy = dcap_qvl.QuotePolicy.claims_only(now)
        found: Any = verifier.verify_with_policy(quote, words, now, policy).to_json()
        return msgspec.json.decode(found, type=prepared(_Claims))
    except AttestationError:
        raise
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise _refusal(str(error)[:300]) from error


def _refusal(said: str) -> AttestationError:
    """The library has one kind of error; its words tell which of ours it is."""
    if "xpired" in said:
        return EvidenceExpired("The quote or Intel's word about it has expired", said, "Fetch new collateral.")
    if "TCB level" in said or "evoked" in said:
        return PlatformRefused("Intel does not vouch for this platform's firmware", said, "Update it.")
    return EvidenceForged("The quote is not one of Intel's", said, "Send the quote and its own collateral.")
