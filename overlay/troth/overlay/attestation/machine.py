"""A Linux guest that speaks for itself: quotes of its processor, reports of its devices, and vendors' words on both.

Quotes come from the kernel's configfs (tsm report, Linux 6.7 and later), the same for TDX and SEV-SNP. Vendors' words
come from Intel's and AMD's services; they are signed, so that whoever carries them can only leave them out. Devices are
asked through NVML (package nvidia-ml-py, beside the driver).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import secrets
import time
from pathlib import Path
from typing import Any, Final

import dcap_qvl
import httpx
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from troth.overlay.attestation.binding import Binding
from troth.overlay.attestation.errors import MachineUnable
from troth.overlay.attestation.evidence import VERSION, DeviceReport, MachineEvidence, SnpEndorsements
from troth.overlay.attestation.sev_snp import SnpReport

REPORTS: Final = Path("/sys/kernel/config/tsm/report")
PROVIDERS: Final = {"tdx": "tdx_guest", "sev-snp": "sev_guest"}
SERVICES: Final = {"tdx": dcap_qvl.INTEL_PCS_URL, "sev-snp": "https://kdsintf.amd.com"}
FETCHED_SECONDS = 3600.0
"""How long vendors' words are sent again: they change every few weeks, and are asked for by every member."""
SERVICE_SECONDS = 30.0
LARGEST_ANSWER = 64 * 1024
_MODELS: Final = {"Milan": (range(0x00, 0x10),), "Genoa": (range(0x10, 0x20), range(0xA0, 0xB0))}
"""Models of family 19h (AMD processor programming references)."""


class LinuxMachine:
    """An `Attester` for the guest in which this process runs.

    Args:
        machine: "tdx" or "sev-snp".
        devices: whether its graphics processors are vouched for, too.
        service: another address for vendors' words, such as a cache of one's own; empty for the vendor's.
        reports: where the kernel makes quotes.
    """

    def __init__(self, machine: str, *, devices: bool = False, service: str = "", reports: Path = REPORTS) -> None:
        self._machine = machine
        self._devices = devices
        self._service = service or SERVICES[machine]
        self._reports = reports
        self._one_at_a_time = asyncio.Lock()
        self._fetched: tuple[float, bytes] | None = None

    async def evidence(self, binding: Binding) -> MachineEvidence:
        """What the hardware signs over a binding; raises MachineUnable, or EvidenceMalformed for another kernel's."""
        async with self._one_at_a_time:
            quote = await asyncio.to_thread(self._quote, binding.report_data())
            words = await self._words(quote)
            devices = await asyncio.to_thread(device_reports, binding.device_nonce()) if self._devices else []
        return MachineEvidence(VERSION, self._machine, quote, words, devices)  # type: ignore[arg-type]

    async def require_quote(self) -> None:
        """Raise MachineUnable where this guest makes no quote; nobody is asked about it."""
        async with self._one_at_a_time:
            await asyncio.to_thread(self._quote, bytes(64))

    def _quote(self, data: bytes) -> bytes:
        entry = self._reports / f"troth-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            entry.mkdir()
            provider = (entry / "provider").read_text().strip()
            if provider != PROVIDERS[self._machine]:
                remedy = f"Set machine in [overlay.confidential] to what {provider} stands for."
                raise MachineUnable(f"This kernel quotes by {provider}, not for {self._machine}", entry, remedy)
            (entry / "inblob").write_bytes(data)
            quote = (entry / "outblob").read_bytes()
            if int((entry / "generation").read_text()) != 1:
                raise MachineUnable("Another program wrote into this quote", entry, "Try again.")
            return quote
        except (OSError, ValueError) as error:
            remedy = "Run inside a confidential guest with Linux 6.7 or later, configfs mounted, as a user who may."
            raise MachineUnable(f"This machine gives no {self._machine} quote", error, remedy) from error
        finally:
            with contextlib.suppress(OSError):
                entry.rmdir()

    async def _words(self, quote: bytes) -> bytes:
        if self._fetched is None or self._fetched[0] < time.monotonic():
            made = await (self._intel(quote) if self._machine == "tdx" else self._amd(SnpReport.read(quote)))
            self._fetched = time.monotonic() + FETCHED_SECONDS, made
        return self._fetched[1]

    async def _intel(self, quote: bytes) -> bytes:
        try:
            async with asyncio.timeout(SERVICE_SECONDS):
                found: str = (await dcap_qvl.get_collateral(self._service, quote)).to_json()
                return found.encode()
        except (TimeoutError, ValueError, RuntimeError) as error:
            raise _unanswered(self._service, error) from error

    async def _amd(self, report: SnpReport) -> bytes:
        """VCEK, ASK, ARK and the list of revoked ones (document 57230, section 4)."""
        product, version = product_of(report), report.firmware
        levels = f"blSPL={version.bootloader:02}&teeSPL={version.tee:02}&snpSPL={version.snp:02}"
        chip = f"/vcek/v1/{product}/{report.chip.hex()}?{levels}&ucodeSPL={version.microcode:02}"
        try:
            async with httpx.AsyncClient(base_url=self._service, timeout=SERVICE_SECONDS) as client:
                vcek = await _fetched(client, chip)
                chain = x509.load_pem_x509_certificates(await _fetched(client, f"/vcek/v1/{product}/cert_chain"))
                revoked = await _fetched(client, f"/vcek/v1/{product}/crl")
            ask, ark = (one.public_bytes(Encoding.DER) for one in chain)
        except (httpx.HTTPError, ValueError) as error:
            raise _unanswered(self._service, error) from error
        return msgspec.msgpack.encode(SnpEndorsements(vcek, ask, ark, revoked))


def product_of(report: SnpReport) -> str:
    """AMD's product of a report of version 3 or later; raises MachineUnable for one that members do not know."""
    family, model = report.data[0x188], report.data[0x189]
    for product, models in _MODELS.items():
        if family == 0x19 and any(model in one for one in models):
            return product
    raise MachineUnable("No member knows this AMD processor", f"family {family:#x}, model {model:#x}", "Use another.")


def device_reports(nonce: bytes) -> list[DeviceReport]:
    """Reports of all graphics processors over a nonce; raises MachineUnable."""
    try:
        import pynvml
    except ImportError as error:
        raise MachineUnable("NVML is not installed", error, "Install nvidia-ml-py, or set devices = false.") from error
    try:
        pynvml.nvmlInit()
        try:
            return [_device_report(pynvml, index, nonce) for index in range(pynvml.nvmlDeviceGetCount())]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        remedy = "Switch the device to confidential mode, and see that its driver runs inside the guest."
        raise MachineUnable("A graphics processor gives no report", error, remedy) from error


def _device_report(nvml: Any, index: int, nonce: bytes) -> DeviceReport:
    """NVML fills structures of fixed size, and says how much of them counts."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    made = nvml.nvmlDeviceGetConfComputeGpuAttestationReport(
        handle, (ctypes.c_uint8 * len(nonce)).from_buffer_copy(nonce)
    )
    certificates = nvml.nvmlDeviceGetConfComputeGpuCertificate(handle)
    report = bytes(made.attestationReport[: made.attestationReportSize])
    return DeviceReport(report, bytes(certificates.attestationCertChain[: certificates.attestationCertChainSize]))


async def _fetched(client: httpx.AsyncClient, path: str) -> bytes:
    async with client.stream("GET", path) as answer:
        answer.raise_for_status()
        body = bytearray()
        async for part in answer.aiter_raw():
            body += part
            if len(body) > LARGEST_ANSWER:
                raise ValueError(f"{path} is longer than {LARGEST_ANSWER} bytes")
        return bytes(body)


def _unanswered(service: str, error: Exception) -> MachineUnable:
    remedy = "See that this guest may connect to it, or name a cache as collateral in [overlay.confidential]."
    return MachineUnable(f"{service} does not say what it vouches for", str(error)[:300], remedy)
