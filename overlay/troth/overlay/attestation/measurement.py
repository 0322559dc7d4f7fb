"""What a machine runs, as one text: the digest of what its hardware measured, and of its graphics processors.

    tdx:<64 hex>                       an Intel TDX guest
    sev-snp:<64 hex>+nvidia:<64 hex>   an AMD SEV-SNP guest with one or more NVIDIA devices of one kind

`tdx.py`, `sev_snp.py` and `nvidia.py` say which registers go into the digests. Whoever builds an image publishes this
text; a client names the texts that it trusts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from troth.overlay.attestation.errors import EvidenceMalformed

LONGEST = 8 + 64 + 8 + 64
"""Characters."""
_TEXT = re.compile(r"(tdx|sev-snp):([0-9a-f]{64})(?:\+nvidia:([0-9a-f]{64}))?")


@dataclass(frozen=True, slots=True)
class Measurement:
    """A machine's measurement.

    Attributes:
        machine: "tdx" or "sev-snp".
        registers: 32 bytes, SHA-256 over what the processor measured of the guest.
        device: 32 bytes, the same of its graphics processors; empty where the guest has none that it vouches for.
    """

    machine: str
    registers: bytes
    device: bytes = b""

    def __str__(self) -> str:
        text = f"{self.machine}:{self.registers.hex()}"
        return f"{text}+nvidia:{self.device.hex()}" if self.device else text


@dataclass(frozen=True, slots=True)
class Attested:
    """What is vouched for: this measurement, until this Unix time."""

    measurement: Measurement
    until: int


def parse_measurement(text: str) -> Measurement:
    """The measurement in its one spelling; raises EvidenceMalformed."""
    found = _TEXT.fullmatch(text)
    if found is None:
        what = "A measurement is tdx: or sev-snp: and 64 hexadecimal digits, then +nvidia: and 64 more for a device"
        raise EvidenceMalformed(what, text[: LONGEST + 1], "Copy it as the image's builder publishes it.")
    machine, registers, device = found.groups()
    return Measurement(machine, bytes.fromhex(registers), bytes.fromhex(device or ""))
