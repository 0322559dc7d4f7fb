"""What a member pays to verify what a machine says of itself: recorded quotes, and a made-up one for what none was
recorded of."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from support.made_up_machine import FIRMWARE, MadeUpMachine, moment

from benchmarks.figures import Figure, median_milliseconds
from troth.overlay.attestation.binding import Binding
from troth.overlay.attestation.errors import EvidenceForged
from troth.overlay.attestation.evidence import SnpEndorsements
from troth.overlay.attestation.nvidia import verify_device
from troth.overlay.attestation.policy import VENDORS
from troth.overlay.attestation.sev_snp import verify_snp
from troth.overlay.attestation.tdx import verify_tdx
from troth.overlay.attestation.verifying import verify
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address

DATA = Path(__file__).resolve().parents[2] / "tests" / "unit" / "data" / "attestation"
COMMITTEE = Domain(31_337, Address("0x5FbDB2315678afecb367f032d93F642f64180aa3"))
REACH = 50.0
_AT = int(datetime.fromisoformat("2026-11-01T00:00:00+00:00").timestamp())


def measure() -> list[Figure]:
    """Medians on one thread of this machine."""
    return [_tdx(), _snp_recorded(), _snp_whole(), _device()]


def _tdx() -> Figure:
    quote = (DATA / "tdx_quote.bin").read_bytes()
    collateral = (DATA / "tdx_quote_collateral.json").read_bytes()
    issued = json.loads(json.loads(collateral)["tcb_info"])["issueDate"]
    now = int(datetime.fromisoformat(issued).timestamp()) + 86_400
    took = median_milliseconds(lambda: verify_tdx(quote, collateral, now))
    note = f"recorded: {len(quote)} bytes, collateral {len(collateral)}"
    return Figure("quote verification: TDX quote with collateral", took, "ms", reach=REACH, note=note)


def _snp_recorded() -> Figure:
    report = (DATA / "snp_report.bin").read_bytes()
    chain = x509.load_pem_x509_certificates((DATA / "snp_certificates.pem").read_bytes())
    vcek, ask, ark = (one.public_bytes(Encoding.DER) for one in chain)
    endorsements = SnpEndorsements(vcek, ask, ark, b"none")

    def verified() -> None:
        # AMD's list was not recorded, and is looked at behind chain, signature and chip.
        with pytest.raises(EvidenceForged, match="revoked"):
            verify_snp(report, endorsements, _AT, VENDORS.amd, {"Milan": FIRMWARE})

    took = median_milliseconds(verified)
    return Figure(
        "quote verification: SEV-SNP report and chain",
        took,
        "ms",
        reach=REACH,
        note="recorded; without the list of revoked",
    )


def _snp_whole() -> Figure:
    machine, policy, now = MadeUpMachine(), MadeUpMachine().vendor.policy(), moment()
    binding = Binding(os.urandom(32), bytes(32), bytes(32), COMMITTEE.contract, "node", COMMITTEE)
    evidence = machine.evidence_of(binding)
    took = median_milliseconds(lambda: verify(evidence, binding, policy, now))
    size = len(msgspec.msgpack.encode(evidence))
    return Figure(
        "quote verification: SEV-SNP evidence, whole", took, "ms", reach=REACH, note=f"made up, RSA 2048; {size} bytes"
    )


def _device() -> Figure:
    report = bytes.fromhex((DATA / "hopper_report.hex").read_text())
    certificates = (DATA / "hopper_certificates.pem").read_bytes()
    took = median_milliseconds(lambda: verify_device(report, certificates, _AT, VENDORS.nvidia))
    return Figure("quote verification: NVIDIA report", took, "ms", reach=REACH, note="recorded, H100")
