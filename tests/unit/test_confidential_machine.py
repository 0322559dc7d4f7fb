"""A guest that quotes: the kernel's files, vendors' services and every way in which either can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from troth.client.configuration import ClientConfiguration, load, save
from troth.client.errors import ConfigurationError
from troth.client.market_table import MarketTable
from troth.client.options import mode_of
from troth.overlay.attestation import machine as machines
from troth.overlay.attestation.binding import Binding
from troth.overlay.attestation.errors import MachineUnable
from troth.overlay.attestation.evidence import decode_endorsements
from troth.overlay.attestation.machine import LinuxMachine, device_reports, product_of
from troth.overlay.attestation.sev_snp import SnpReport
from troth.overlay.sessions.entry_section import ConfidentialSection, OverlaySection, entry_of
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address

DATA = Path(__file__).parent / "data" / "attestation"
COMMITTEE = Address("0x5FbDB2315678afecb367f032d93F642f64180aa3")
BINDING = Binding(bytes(32), bytes(32), bytes(32), COMMITTEE, "node", Domain(1, COMMITTEE))
TRUSTED = "tdx:" + "a" * 64


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Files that appear in each folder that is made, as configfs makes them."""
    files = {"provider": b"sev_guest\n", "generation": b"1\n", "outblob": (DATA / "snp_report.bin").read_bytes()}
    real = Path.mkdir

    def mkdir(self: Path, *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **options)
        for name, content in files.items():
            (self / name).write_bytes(content)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    return files


def chain() -> tuple[bytes, bytes]:
    """VCEK in DER and the service's chain in PEM."""
    text = (DATA / "snp_certificates.pem").read_bytes()
    first, rest = text.split(b"-----END CERTIFICATE-----\n", 1)
    vcek = x509.load_pem_x509_certificate(first + b"-----END CERTIFICATE-----\n")
    return vcek.public_bytes(Encoding.DER), rest


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
async def test_a_guest_quotes_and_fetches_its_vendor_s_words_once(
    tmp_path: Path, kernel: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    vcek, rest = chain()

    def service(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        path = request.url.path
        body = rest if path.endswith("cert_chain") else b"crl" if "crl" in path else vcek
        return httpx.Response(200, stream=httpx.ByteStream(body))

    made = httpx.AsyncClient
    monkeypatch.setattr(machines.httpx, "AsyncClient", lambda **k: made(transport=httpx.MockTransport(service), **k))
    machine = LinuxMachine("sev-snp", reports=tmp_path)
    evidence = await machine.evidence(BINDING)
    assert evidence.report == kernel["outblob"]
    (entry,) = list(tmp_path.glob("*"))  # noqa: ASYNC240
    assert (entry / "inblob").read_bytes() == BINDING.report_data()
    endorsements = decode_endorsements(evidence.endorsements)
    assert (endorsements.vcek, endorsements.revoked) == (vcek, b"crl")
    chip = SnpReport.read(kernel["outblob"]).chip.hex()
    base = "https://kdsintf.amd.com/vcek/v1/Milan"
    levels = "blSPL=04&teeSPL=00&snpSPL=24&ucodeSPL=219"
    assert asked == [f"{base}/{chip}?{levels}", f"{base}/cert_chain", f"{base}/crl"]
    await machine.evidence(BINDING)
    assert len(asked) == 3


async def test_a_service_that_fails_or_answers_at_length_is_named(
    tmp_path: Path, kernel: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = httpx.AsyncClient
    long = httpx.ByteStream(bytes(machines.LARGEST_ANSWER + 1))
    for answer in (httpx.Response(404), httpx.Response(200, stream=long)):
        transport = httpx.MockTransport(lambda _request, answer=answer: answer)
        monkeypatch.setattr(machines.httpx, "AsyncClient", lambda t=transport, **k: made(transport=t, **k))
        with pytest.raises(MachineUnable, match="does not say"):
            await LinuxMachine("sev-snp", reports=tmp_path).evidence(BINDING)


async def test_a_machine_that_cannot_quote_says_why(tmp_path: Path, kernel: dict[str, bytes]) -> None:
    with pytest.raises(MachineUnable, match="gives no tdx quote"):
        await LinuxMachine("tdx", reports=tmp_path / "absent" / "reports").require_quote()
    with pytest.raises(MachineUnable, match="quotes by sev_guest"):
        await LinuxMachine("tdx", reports=tmp_path).require_quote()
    await LinuxMachine("sev-snp", reports=tmp_path).require_quote()
    kernel["generation"] = b"2\n"
    with pytest.raises(MachineUnable, match="Another program"):
        await LinuxMachine("sev-snp", reports=tmp_path).require_quote()


def test_a_processor_that_no_member_knows_is_named() -> None:
    data = bytearray((DATA / "snp_report.bin").read_bytes())
    assert product_of(SnpReport.read(bytes(data))) == "Milan"
    data[0x189] = 0x11
    assert product_of(SnpReport.read(bytes(data))) == "Genoa"
    data[0x188] = 0x1A
    with pytest.raises(MachineUnable, match="No member knows"):
        product_of(SnpReport.read(bytes(data)))


def test_without_nvml_or_a_device_nothing_is_reported() -> None:
    with pytest.raises(MachineUnable):
        device_reports(bytes(32))


# --------------------------------------------------------------------------------------------------- configuration


def test_an_entry_names_its_machine_and_whom_it_speaks_to() -> None:
    def refuse(what: str, value: object, remedy: str) -> ConfigurationError:
        return ConfigurationError(what, value, remedy)

    def entry(**changes: Any) -> Any:
        table = msgspec.convert({"machine": "tdx", "trusted": [TRUSTED]} | changes, ConfidentialSection)
        return entry_of(OverlaySection(COMMITTEE, "127.0.0.1:1", confidential=table), "https://127.0.0.1:1", refuse)

    made = entry().confidential
    assert [str(one) for one in made.trusted] == [TRUSTED]
    assert isinstance(made.attester, LinuxMachine)
    for wrong in ({"trusted": ["tdx:aa"]}, {"collateral": "http://127.0.0.1"}):
        with pytest.raises(ConfigurationError):
            entry(**wrong)
    for wrong in ({"trusted": []}, {"machine": "sgx"}, {"root": "00"}):
        with pytest.raises(msgspec.ValidationError):
            entry(**wrong)


def test_a_client_trusts_what_its_file_names_and_nothing_else(tmp_path: Path) -> None:
    table = MarketTable(COMMITTEE)
    made = ClientConfiguration(table, committee=COMMITTEE, mode="confidential", trusted=(TRUSTED,)).checked()
    assert (made.direct, made.confidential) == (True, True)
    save(tmp_path / "client.toml", made)
    assert load(tmp_path / "client.toml") == made
    with pytest.raises(ConfigurationError, match="none is named"):
        ClientConfiguration(table, committee=COMMITTEE, mode="confidential").checked()
    with pytest.raises(ConfigurationError, match="trusted"):
        ClientConfiguration(table, committee=COMMITTEE, trusted=("tdx:x",)).checked()
    with pytest.raises(ConfigurationError, match="overlay alone"):
        ClientConfiguration(table, mode="confidential", trusted=(TRUSTED,)).checked()


def test_the_option_that_is_confidential_is_never_less() -> None:
    assert mode_of(None, confidential=True) == mode_of(True, confidential=True) == "confidential"
    assert (mode_of(None), mode_of(True), mode_of(False)) == ("", "direct", "scheduler")
    with pytest.raises(Exception, match="leave --no-direct out"):
        mode_of(False, confidential=True)
