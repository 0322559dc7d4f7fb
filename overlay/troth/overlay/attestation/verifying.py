"""A member's check of evidence: every signature up to its vendor's root, and all of it bound to one party's keys."""

from __future__ import annotations

from troth.overlay.attestation.binding import Binding
from troth.overlay.attestation.errors import EvidenceExpired, EvidenceMisbound, PlatformRefused
from troth.overlay.attestation.evidence import MachineEvidence, decode_endorsements
from troth.overlay.attestation.measurement import Attested, Measurement
from troth.overlay.attestation.nvidia import verify_device
from troth.overlay.attestation.policy import PlatformPolicy
from troth.overlay.attestation.quote import VerifiedQuote, digest_of
from troth.overlay.attestation.sev_snp import verify_snp
from troth.overlay.attestation.tdx import verify_tdx


def verify(evidence: MachineEvidence, binding: Binding, policy: PlatformPolicy, now: int) -> Attested:
    """What the machine behind evidence runs; raises an AttestationError. Milliseconds: call it in a thread."""
    machine = _machine(evidence, policy, now)
    if machine.bound != binding.report_data():
        remedy = "Ask this member for a nonce, and quote for the keys that are published."
        raise EvidenceMisbound("The quote is for other keys, another party or another nonce", None, remedy)
    devices = _devices(evidence, binding, policy, now)
    until = min(one.until for one in (machine, *devices))
    if until <= now:
        raise EvidenceExpired("The vendor's word about this machine has ended", until, "Fetch it anew.")
    return Attested(Measurement(evidence.machine, machine.registers, _registers(devices)), until)


def _machine(evidence: MachineEvidence, policy: PlatformPolicy, now: int) -> VerifiedQuote:
    if evidence.machine == "sev-snp":
        endorsements = decode_endorsements(evidence.endorsements)
        return verify_snp(evidence.report, endorsements, now, policy.roots.amd, policy.sev_snp)
    if not policy.tdx:
        raise PlatformRefused("This member vouches for no TDX guest", evidence.machine, "Ask its operator.")
    return verify_tdx(evidence.report, evidence.endorsements, now, policy.roots.intel)


def _devices(evidence: MachineEvidence, binding: Binding, policy: PlatformPolicy, now: int) -> list[VerifiedQuote]:
    if evidence.devices and not policy.nvidia:
        raise PlatformRefused("This member vouches for no graphics processor", len(evidence.devices))
    found = [verify_device(one.report, one.certificates, now, policy.roots.nvidia) for one in evidence.devices]
    if any(one.bound != binding.device_nonce() for one in found):
        raise EvidenceMisbound("A device's report answers another nonce", len(found), "Ask for a nonce, and once only.")
    return found


def _registers(devices: list[VerifiedQuote]) -> bytes:
    """One digest for all: machines with one kind of device have one measurement, however many there are."""
    kinds = sorted({one.registers for one in devices})
    return digest_of(b"devices", *kinds) if kinds else b""
