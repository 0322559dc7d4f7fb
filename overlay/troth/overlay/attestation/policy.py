"""Whom a member believes: the vendors' roots, and the oldest firmware that it still vouches for.

A root is a constant of this program. No file, option or variable adds one: whoever could would read every prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple


class SnpVersion(NamedTuple):
    """Security versions of an AMD platform's firmware; each part counts on its own (SEV-SNP ABI, TCB_VERSION)."""

    bootloader: int
    tee: int
    snp: int
    microcode: int


@dataclass(frozen=True, slots=True)
class Roots:
    """Where chains of certificates must end.

    Args:
        intel: the SGX root's certificate, DER; empty for the one that the library holds.
        amd: SHA-256 of each product's root certificate (ARK), DER, by the product's name.
        nvidia: SHA-256 of the device root's certificate, DER.
    """

    intel: bytes
    amd: Mapping[str, bytes]
    nvidia: bytes


VENDORS: Final = Roots(
    intel=b"",
    amd={
        "Milan": bytes.fromhex("69d063b45344d26a2e94e1f4210de49ef555308287d4c174445c95639a540bcd"),
        "Genoa": bytes.fromhex("4c6598d19c18719c5dfd4a7d335f674e5bfe1d8f800cea2cf270c10d103db2f1"),
    },
    nvidia=bytes.fromhex("102bf659d5419614c9d8e6aecebc80454eb26b1df6a769ac720b9a690b167b48"),
)
"""The vendors' own, as their services hand them out."""


@dataclass(frozen=True, slots=True)
class PlatformPolicy:
    """What a member vouches for; by default nothing.

    Args:
        tdx: whether Intel TDX guests; Intel's own word on what is up to date counts.
        sev_snp: AMD's products, each with the oldest firmware; AMD's reports say what a machine has, and not what is
            too old.
        nvidia: whether graphics processors.
        roots: other than the vendors' in tests alone.
    """

    tdx: bool = False
    sev_snp: Mapping[str, SnpVersion] = field(default_factory=dict)
    nvidia: bool = False
    roots: Roots = VENDORS

    def told(self) -> list[str]:
        """Whom a member with this policy vouches for, in words."""
        products = [f"{name} from {tuple(least)}" for name, least in sorted(self.sev_snp.items())]
        return [*(["tdx"] if self.tdx else []), *products, *(["nvidia"] if self.nvidia else [])]
