"""The contracts' interfaces as packaged data: ABI, and the bytecode that a wheel needs to deploy.

``scripts/generate_bindings`` writes the JSON files from the compiler's output and checks them for drift. ``MARKET`` are
the contracts of the market; the others stand beside one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from troth.protocol.hashing import keccak256

COMMITTEE = "committee"
REPUTATION = "reputation"
ORGANISATIONS = "organisations"
TICKETS, TICKET_PAYER = "tickets/tickets", "tickets/ticketpayer"
DISPUTES = "disputes"
IMPRINTS = "imprints"
STEPS = "steps"
NUMBERS = "numbers"
MARKET_PARTS = (
    *("bank", "registry", "court", "summons", "evidence", "log"),
    *("lens", "docket", "judgement", "classes", "leaves", "proofs"),
)
"""The parts of a deployment in the order in which its factory numbers them."""
EVIDENCE = "market/evidence"
MARKET = tuple(f"market/{part}" for part in (*MARKET_PARTS, "deployment"))


@dataclass(frozen=True, slots=True)
class Parameter:
    """One input, output or event field; ``type`` is canonical, with tuples written out; structs have ``components``."""

    name: str
    type: str
    indexed: bool
    components: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class AbiEntry:
    """A function, event, error or constructor of the contract."""

    kind: str
    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]

    @property
    def signature(self) -> str:
        """For example ``deposit(address)``."""
        return f"{self.name}({','.join(parameter.type for parameter in self.inputs)})"

    @property
    def topic(self) -> bytes:
        """keccak256 of the signature: the first topic of an event."""
        return keccak256(self.signature.encode("ascii"))

    @property
    def selector(self) -> bytes:
        """First four bytes of a call's or of a custom error's data."""
        return self.topic[:4]


def _parameter(item: Mapping[str, Any]) -> Parameter:
    components = tuple(_parameter(component) for component in item.get("components", ()))
    written = str(item["type"])
    if written.startswith("tuple"):
        written = f"({','.join(component.type for component in components)}){written.removeprefix('tuple')}"
    return Parameter(str(item.get("name", "")), written, bool(item.get("indexed", False)), components)


def _entry(item: Mapping[str, Any]) -> AbiEntry:
    return AbiEntry(
        kind=str(item["type"]),
        name=str(item.get("name", item["type"])),
        inputs=tuple(_parameter(parameter) for parameter in item.get("inputs", ())),
        outputs=tuple(_parameter(parameter) for parameter in item.get("outputs", ())),
    )


def read_resource(name: str) -> dict[str, Any]:
    """A packaged JSON file of this folder."""
    loaded: dict[str, Any] = json.loads(files(__name__).joinpath(name).read_text("utf-8"))
    return loaded


@lru_cache(maxsize=16)
def entries(contract: str) -> tuple[AbiEntry, ...]:
    """Everything in a contract's ABI."""
    return tuple(_entry(item) for item in read_resource(f"{contract}.json")["abi"])


@lru_cache(maxsize=64)
def named(kind: str, contract: str) -> Mapping[str, AbiEntry]:
    """Entries of one kind ("function", "event", "error", "constructor") by name; no contract overloads a name."""
    return {entry.name: entry for entry in entries(contract) if entry.kind == kind}


@lru_cache(maxsize=16)
def functions_by_selector(contract: str) -> Mapping[bytes, AbiEntry]:
    """Functions by the first four bytes of their calldata."""
    return {entry.selector: entry for entry in named("function", contract).values()}


@lru_cache(maxsize=2)
def errors_by_selector(contracts: tuple[str, ...]) -> Mapping[bytes, AbiEntry]:
    """Custom errors of these contracts by the first four bytes of revert data."""
    return {entry.selector: entry for contract in contracts for entry in entries(contract) if entry.kind == "error"}
