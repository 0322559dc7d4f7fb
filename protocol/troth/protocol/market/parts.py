"""The contracts of a deployment by name: where each lives, and which binding describes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from troth.protocol.market.types import Contracts
from troth.protocol.types import Address

FACTORY = "market/deployment"
"""Binding of the factory, which is no part of a deployment."""


@dataclass(frozen=True, slots=True)
class MarketPlace:
    """Which deployment: its factory, its Bank where the factory made several, and a block not after it."""

    factory: Address
    bank: Address | None = None
    start_block: int = 0


class Part(StrEnum):
    """One of the contracts that a factory wires to each other; its value is its field in ``Contracts``."""

    BANK = "bank"
    REGISTRY = "registry"
    COURT = "court"
    SUMMONS = "summons"
    EVIDENCE = "evidence"
    LOG = "log"
    LENS = "lens"
    DOCKET = "docket"
    JUDGEMENT = "judgement"
    CLASSES = "classes"
    LEAVES = "leaves"
    PROOFS = "proofs"

    @property
    def binding(self) -> str:
        """Name of its binding."""
        return f"market/{self.value}"

    def of(self, contracts: Contracts) -> Address:
        """Its address in a deployment."""
        address: Address = getattr(contracts, self.value)
        return address


@lru_cache(maxsize=16)
def parts_by_address(contracts: Contracts) -> dict[Address, Part]:
    """The part at each address."""
    return {part.of(contracts): part for part in Part}
