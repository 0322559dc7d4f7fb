"""Attestations: recorded quotes of real machines, and a machine that does not exist for what no real one would say."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st
from support.made_up_machine import FIRMWARE, MadeUpMachine, made_up_vendor, moment, nonce

from troth.overlay.attestation import tdx
from troth.overlay.attestation.binding import Binding
from troth.overlay.attestation.errors import (
    AttestationError,
    EvidenceExpired,
    EvidenceForged,
    EvidenceMalformed,
    EvidenceMisbound,
    PlatformRefused,
)
from troth.overlay.attestation.evidence import (
    LARGEST_EVIDENCE,
    MOST_DEVICES,
    DeviceReport,
    MachineEvidence,
    SnpEndorsements,
    decode_endorsements,
    decode_evidence,
    encode_evidence,
)
from troth.overlay.attestation.measurement import Measurement, parse_measurement
from troth.overlay.attestation.nvidia import verify_device
from troth.overlay.attestation.policy import VENDORS, PlatformPolicy, SnpVersion
from troth.overlay.attestation.sev_snp import SnpReport, verify_snp
from troth.overlay.attestation.tdx import verify_tdx
from troth.overlay.attestation.verifying import verify
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address

pytestmark = pytest.mark.filterwarnings("ignore:Parsed a serial number")
DATA = Path(__file__).parent / "data" / "attestation"
RECORDED = int(datetime.fromisoformat("2026-11-01T00:00:00+00:00").timestamp())
COMMITTEE = Domain(31_337, Address("0x5FbDB2315678afecb367f032d93F642f64180aa3"))
OPERATOR = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"


def recorded(name: str) -> tuple[bytes, bytes, int]:
    """A recorded TDX or SGX quote, its collateral, and a time at which both held."""
    quote, collateral = (DATA / f"{name}.bin").read_bytes(), (DATA / f"{name}_collateral.json").read_bytes()
    issued = json.loads(json.loads(collateral)["tcb_info"])["issueDate"]
    return quote, collateral, int(datetime.fromisoformat(issued).timestamp()) + 86_400


def binding(**changes: Any) -> Binding:
    made = Binding(bytes(32), b"t" * 32, b"s" * 32, OPERATOR, "node", COMMITTEE)
    return replace(made, **changes)


# ---------------------------------------------------------------------------------------------------- Intel TDX, real


@pytest.mark.parametrize("name", ["tdx_quote", "tdx_quote_td15ex"])
def test_a_recorded_tdx_quote_leads_to_intel_s_root(name: str) -> None:
    quote, collateral, now = recorded(name)
    found = verify_tdx(quote, collateral, now)
    assert found.bound in quote
    assert len(found.bound) == 64
    assert now < found.until <= now + 30 * 86_400
    assert len(found.registers) == 32


def test_two_guests_have_two_measurements() -> None:
    first, second = (verify_tdx(*recorded(name)) for name in ("tdx_quote", "tdx_quote_td15ex"))
    assert first.registers != second.registers


def test_a_tdx_quote_counts_no_longer_than_intel_s_word() -> None:
    quote, collateral, now = recorded("tdx_quote")
    until = verify_tdx(quote, collateral, now).until
    assert verify_tdx(quote, collateral, until - 1).until == until
    for wrong in (until, now - 10 * 365 * 86_400):
        with pytest.raises(AttestationError):
            verify_tdx(quote, collateral, wrong)
    quote, collateral, now = recorded("tdx_quote_td15ex")
    with pytest.raises(EvidenceExpired, match="Fetch new collateral"):
        verify_tdx(quote, collateral, now + 32 * 86_400)


def test_a_platform_that_is_out_of_date_is_refused() -> None:
    with pytest.raises(PlatformRefused):
        verify_tdx(*recorded("tdx_quote_outdated"))


@pytest.mark.parametrize("status", ["Revoked", "OutOfDate", "SWHardeningNeeded", "ConfigurationNeeded", ""])
def test_only_a_platform_that_intel_calls_up_to_date_is_vouched_for(
    status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the library finds of platforms that nobody recorded, put in its mouth."""
    quote, collateral, now = recorded("tdx_quote")
    said = {"claims_version": 1, "tcb": {"status": status}, "earliest_expiration_date": now + 9}
    claims = json.dumps(said | {"qe_iden_earliest_expiration_date": now + 9})
    verifier = SimpleNamespace(verify_with_policy=lambda *_: SimpleNamespace(to_json=lambda: claims))
    monkeypatch.setattr(tdx.dcap_qvl, "QuoteVerifier", lambda _root: verifier)
    with pytest.raises(PlatformRefused, match="not up to date"):
        verify_tdx(quote, collateral, now)


@pytest.mark.parametrize("bit", [0, 4])
def test_a_guest_that_its_host_can_debug_is_refused(bit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    quote, collateral, now = recorded("tdx_quote")
    parsed = tdx.dcap_qvl.parse_quote(quote)
    attributes = bytes([1 << bit]) + parsed.report.td_attributes[1:]
    bent = SimpleNamespace(is_tdx=lambda: True, report=SimpleNamespace(td_attributes=attributes))
    monkeypatch.setattr(tdx.dcap_qvl, "parse_quote", lambda _quote: bent)
    with pytest.raises(PlatformRefused, match="debugged"):
        verify_tdx(quote, collateral, now)


def test_a_library_that_panics_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A panic in the library's own language is no Exception of Python's."""

    class Panic(BaseException):
        pass

    def panics(_quote: bytes) -> None:
        raise Panic("index out of bounds")

    monkeypatch.setattr(tdx.dcap_qvl, "parse_quote", panics)
    with pytest.raises(EvidenceForged, match="out of bounds"):
        verify_tdx(*recorded("tdx_quote"))


def test_an_enclave_s_quote_is_no_guest_s() -> None:
    with pytest.raises(EvidenceMalformed, match="enclave"):
        verify_tdx(*recorded("sgx_quote"))


@pytest.mark.parametrize("offset", [0, 4, 30, 48, 200, 500, 570, 640, 700, 900, 1300])
def test_a_changed_tdx_quote_is_refused(offset: int) -> None:
    quote, collateral, now = recorded("tdx_quote")
    changed = bytearray(quote)
    changed[offset] ^= 1
    with pytest.raises(AttestationError):
        verify_tdx(bytes(changed), collateral, now)


@pytest.mark.parametrize("key", ["tcb_info", "qe_identity"])
def test_changed_collateral_is_refused(key: str) -> None:
    quote, collateral, now = recorded("tdx_quote_outdated")
    words = json.loads(collateral)
    words[key] = words[key].replace("OutOfDate", "UpToDate").replace("2026-03-20", "2036-03-20")
    with pytest.raises(EvidenceForged):
        verify_tdx(quote, json.dumps(words).encode(), now)


def test_another_root_than_intel_s_is_none() -> None:
    quote, collateral, now = recorded("tdx_quote")
    with pytest.raises(AttestationError):
        verify_tdx(quote, collateral, now, root=made_up_vendor().ark)


@settings(max_examples=50)
@given(st.binary(max_size=6000), st.binary(max_size=300))
def test_garbage_is_refused_and_nothing_else_happens(quote: bytes, collateral: bytes) -> None:
    real, words, now = recorded("tdx_quote")
    # What comes behind a quote's own lengths nobody signed, and nobody reads.
    for one, other in ((quote, words), (real, collateral), (real[:100] + quote, words), (real[:4000] + quote, words)):
        with pytest.raises(AttestationError):
            verify_tdx(one, other, now)


# ------------------------------------------------------------------------------------------------ AMD SEV-SNP, real


def real_snp() -> tuple[bytes, SnpEndorsements]:
    """A report of a Milan machine with its chip's chain; AMD's list of revoked certificates was not recorded."""
    chain = x509.load_pem_x509_certificates((DATA / "snp_certificates.pem").read_bytes())
    vcek, ask, ark = (one.public_bytes(Encoding.DER) for one in chain)
    return (DATA / "snp_report.bin").read_bytes(), SnpEndorsements(vcek, ask, ark, b"none")


def test_a_recorded_snp_report_leads_to_amd_s_root() -> None:
    data, endorsements = real_snp()
    report = SnpReport.read(data)
    report.require_signed(x509.load_der_x509_certificate(endorsements.vcek))
    assert report.firmware == SnpVersion(4, 0, 24, 219)
    assert hashlib.sha256(endorsements.ark).digest() == VENDORS.amd["Milan"]
    # Chain, signature, chip and version hold; what was not recorded is what is missed.
    with pytest.raises(EvidenceForged, match="revoked"):
        verify_snp(data, endorsements, RECORDED, VENDORS.amd, {"Milan": FIRMWARE})
    other = msgspec.structs.replace(endorsements, revoked=made_up_vendor().revoked())
    with pytest.raises(EvidenceForged, match="not signed by AMD's root"):
        verify_snp(data, other, RECORDED, VENDORS.amd, {"Milan": FIRMWARE})


@pytest.mark.parametrize("offset", [8, 0x50, 0x90, 0x180, 0x1A0, 0x2A0, 0x2E8])
def test_a_changed_snp_report_is_refused(offset: int) -> None:
    data, endorsements = real_snp()
    changed = bytearray(data)
    changed[offset] ^= 1
    with pytest.raises(EvidenceForged, match="chip"):
        verify_snp(bytes(changed), endorsements, RECORDED, VENDORS.amd, {"Milan": FIRMWARE})


def test_a_recorded_chain_counts_in_its_time_only() -> None:
    data, endorsements = real_snp()
    for now in (RECORDED - 10 * 365 * 86_400, RECORDED + 10 * 365 * 86_400):
        with pytest.raises(EvidenceExpired):
            verify_snp(data, endorsements, now, VENDORS.amd, {"Milan": FIRMWARE})


# ---------------------------------------------------------------------------------------------- NVIDIA Hopper, real


def hopper() -> tuple[bytes, bytes]:
    return bytes.fromhex((DATA / "hopper_report.hex").read_text()), (DATA / "hopper_certificates.pem").read_bytes()


def test_a_recorded_device_report_leads_to_nvidia_s_root() -> None:
    report, certificates = hopper()
    found = verify_device(report, certificates, RECORDED, VENDORS.nvidia)
    assert found.bound == report[4:36]
    assert found.until > RECORDED


@pytest.mark.parametrize("offset", [0, 5, 41, 60, 3000, 3600, 3650, 4016, 4030, 4116])
def test_a_changed_device_report_is_refused(offset: int) -> None:
    report, certificates = hopper()
    changed = bytearray(report)
    changed[offset] ^= 1
    with pytest.raises(AttestationError):
        verify_device(bytes(changed), certificates, RECORDED, VENDORS.nvidia)


def test_a_device_s_chain_ends_at_nvidia_s_root_and_has_bounds() -> None:
    report, certificates = hopper()
    with pytest.raises(EvidenceForged, match="root"):
        verify_device(report, certificates, RECORDED, bytes(32))
    with pytest.raises(EvidenceMalformed, match="at most"):
        verify_device(report, certificates * 3, RECORDED, VENDORS.nvidia)
    with pytest.raises(AttestationError):
        verify_device(report, certificates[:-900], RECORDED, VENDORS.nvidia)


@settings(max_examples=30)
@given(st.integers(0, 4116), st.binary(max_size=64))
def test_a_cut_device_report_is_refused_and_nothing_else_happens(length: int, more: bytes) -> None:
    report, certificates = hopper()
    if report[:length] + more != report:
        with pytest.raises(AttestationError):
            verify_device(report[:length] + more, certificates, RECORDED, VENDORS.nvidia)


# ---------------------------------------------------------------------------------- a machine that does not exist


def attested(machine: MadeUpMachine, **changes: Any) -> Any:
    mine = binding(nonce=nonce())
    return verify(machine.evidence_of(mine, **changes), mine, machine.vendor.policy(), moment())


def test_what_a_machine_runs_is_named_and_ends_with_the_list_of_revoked() -> None:
    machine = MadeUpMachine()
    found = attested(machine)
    assert found.measurement == attested(machine).measurement
    assert parse_measurement(str(found.measurement)) == found.measurement
    assert moment() < found.until <= moment() + 86_400
    assert found.measurement != attested(replace(machine, image=b"another")).measurement
    assert found.measurement != attested(replace(machine, policy=machine.policy | 1 << 20)).measurement


def test_a_made_up_root_is_trusted_by_nobody_else() -> None:
    machine, mine = MadeUpMachine(), binding()
    policy = PlatformPolicy(tdx=True, sev_snp={"Milan": FIRMWARE}, nvidia=True)
    assert policy.roots is VENDORS
    with pytest.raises(EvidenceForged, match="root of AMD's"):
        verify(machine.evidence_of(mine), mine, policy, moment())


@pytest.mark.parametrize(
    "other",
    [
        {"nonce": b"n" * 32},
        {"tls_key_hash": b"o" * 32},
        {"seal_key": b"o" * 32},
        {"operator": COMMITTEE.contract},
        {"kind": "scheduler"},
        {"domain": Domain(1, COMMITTEE.contract)},
    ],
)
def test_a_quote_for_another_key_party_network_or_nonce_is_refused(other: dict[str, Any]) -> None:
    machine = MadeUpMachine()
    with pytest.raises(EvidenceMisbound):
        verify(machine.evidence_of(binding()), binding(**other), machine.vendor.policy(), moment())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"policy": 0x3001F | 1 << 19}, "host read"),
        ({"policy": 0x3001F | 1 << 18}, "host read"),
        ({"firmware": SnpVersion(3, 0, 24, 219), "certified": SnpVersion(3, 0, 24, 219)}, "older"),
        ({"firmware": SnpVersion(9, 0, 23, 255), "certified": SnpVersion(9, 0, 23, 255)}, "older"),
    ],
)
def test_an_open_or_outdated_machine_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(PlatformRefused, match=why):
        attested(replace(MadeUpMachine(), **changes))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"firmware": SnpVersion(5, 0, 24, 219)}, "other firmware|another firmware"),
        ({"chip": bytes(64)}, "chip"),
        ({"chip": b"c" * 64}, "chip"),
        ({"product": "Genoa-B0"}, "product"),
    ],
)
def test_a_report_and_a_certificate_that_differ_are_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(EvidenceForged, match=why):
        attested(replace(MadeUpMachine(), **changes))


def test_a_revoked_chain_is_refused_and_so_is_an_old_or_foreign_list() -> None:
    machine, vendor = MadeUpMachine(), made_up_vendor()
    with pytest.raises(PlatformRefused, match="revoked"):
        attested(machine, revoked=vendor.revoked(vendor.ask))
    with pytest.raises(EvidenceExpired, match="ended"):
        attested(machine, revoked=vendor.revoked(ends=-timedelta(hours=1)))
    with pytest.raises(EvidenceForged, match="not signed"):
        attested(machine, revoked=vendor.revoked(key=vendor.ask_key))
    with pytest.raises(EvidenceForged):
        attested(machine, revoked=os.urandom(400))


def test_a_chain_that_is_broken_or_out_of_place_is_refused() -> None:
    machine, other, vendor = MadeUpMachine(), made_up_vendor(1), made_up_vendor()
    for changes in ({"ask": other.ask}, {"ark": other.ark}, {"vcek": vendor.ask}, {"ask": vendor.ark}):
        with pytest.raises(AttestationError):
            attested(machine, **changes)
    with pytest.raises(EvidenceMalformed):
        attested(machine, vcek=b"\x30\x00")
    # The right chain, and another key under the report.
    mine = binding()
    forged = replace(machine, key=ec.generate_private_key(ec.SECP384R1()))
    bent = forged.evidence_of(mine, vcek=machine.vcek())
    with pytest.raises(EvidenceForged, match="not signed by the chip"):
        verify(bent, mine, vendor.policy(), moment())


def test_a_member_vouches_for_what_it_names_alone() -> None:
    machine, mine = MadeUpMachine(), binding()
    evidence = machine.evidence_of(mine)
    with pytest.raises(PlatformRefused, match="no such product"):
        verify(evidence, mine, machine.vendor.policy(sev_snp={}), moment())
    quote, collateral, now = recorded("tdx_quote")
    with pytest.raises(PlatformRefused, match="TDX"):
        verify(MachineEvidence(1, "tdx", quote, collateral, []), mine, PlatformPolicy(), now)
    with pytest.raises(EvidenceMisbound):
        verify(MachineEvidence(1, "tdx", quote, collateral, []), mine, PlatformPolicy(tdx=True), now)
    device = DeviceReport(*hopper())
    with_device = MachineEvidence(1, "sev-snp", evidence.report, evidence.endorsements, [device])
    with pytest.raises(PlatformRefused, match="graphics"):
        verify(with_device, mine, machine.vendor.policy(), moment())
    trusting = replace(machine.vendor.roots(), nvidia=VENDORS.nvidia)
    with pytest.raises(EvidenceMisbound, match="nonce"):
        verify(with_device, mine, machine.vendor.policy(nvidia=True, roots=trusting), moment())


# ------------------------------------------------------------------------------------------------------------- bytes


def test_evidence_has_one_encoding_and_bounds() -> None:
    evidence = MadeUpMachine().evidence_of(binding())
    data = encode_evidence(evidence)
    assert decode_evidence(data) == evidence
    for wrong in (b"", data[:-1], data + b"\x00", bytes(LARGEST_EVIDENCE + 1), b"\xc1" * 100):
        with pytest.raises(EvidenceMalformed):
            decode_evidence(wrong)
    loose = msgspec.msgpack.encode([1, "sev-snp", evidence.report, evidence.endorsements, []])
    assert loose == data
    for row in (
        [2, "sev-snp", b"r", b"", []],
        [1, "sgx", b"r", b"", []],
        [1, "tdx", bytes(16 * 1024 + 1), b"", []],
        [1, "tdx", b"r", bytes(128 * 1024 + 1), []],
        [1, "tdx", b"r", b"", [[b"r", b"c"]] * (MOST_DEVICES + 1)],
    ):
        with pytest.raises(EvidenceMalformed):
            decode_evidence(msgspec.msgpack.encode(row))
    with pytest.raises(EvidenceMalformed):
        decode_endorsements(msgspec.msgpack.encode([b"1", b"2", b"3"]))


@pytest.mark.parametrize("text", ["", "tdx:", "tdx:" + "A" * 64, "sgx:" + "a" * 64, "tdx:" + "a" * 64 + "+nvidia:"])
def test_a_measurement_has_one_spelling(text: str) -> None:
    with pytest.raises(EvidenceMalformed):
        parse_measurement(text)
    assert str(Measurement("tdx", b"a" * 32, b"b" * 32)) == f"tdx:{(b'a' * 32).hex()}+nvidia:{(b'b' * 32).hex()}"
