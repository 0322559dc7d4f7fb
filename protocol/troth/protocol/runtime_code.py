"""Whether the code at an address is a shipped contract's.

A contract's immutables are written into its code when it is created, so the code of two deployments differs there and
nowhere else. They are masked with zeros before the code is hashed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from troth.protocol.bindings import COMMITTEE, MARKET, MARKET_PARTS, read_resource
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32, to_hash32

IMMUTABLE_BYTES = 32
"""What the compiler leaves for each place in which an immutable is used."""


@dataclass(frozen=True, slots=True)
class RuntimeCode:
    """What a shipped contract's code on a chain looks like: ``length`` in bytes, ``immutables`` the offsets of words
    that creation fills in, ``hash`` keccak256 of the code with zeros there."""

    length: int
    immutables: tuple[int, ...]
    hash: Hash32

    def fits(self, code: bytes) -> bool:
        """Whether this is the contract's code, whatever its immutables are."""
        return len(code) == self.length and self.masked_hash(code) == self.hash

    def masked_hash(self, code: bytes) -> Hash32:
        """keccak256 of the code with zeros for immutables."""
        masked = bytearray(code)
        for start in self.immutables:
            masked[start : start + IMMUTABLE_BYTES] = bytes(IMMUTABLE_BYTES)
        return Hash32(keccak256(bytes(masked)))


@lru_cache(maxsize=16)
def runtime_of(contract: str) -> RuntimeCode:
    """The code of ``committee`` or one of the ``MARKET`` contracts, as ``scripts/generate_bindings`` packaged it."""
    found = read_resource(f"{contract}.bytecode.json")["runtime"]
    return RuntimeCode(
        int(found["length"]),
        tuple(int(start) for start in found["immutables"]),
        to_hash32(bytes.fromhex(found["hash"].removeprefix("0x"))),
    )


def largest_code() -> int:
    """Bytes of the largest contract that ships: what a chain's limit of code (EIP-170) has to allow."""
    return max(runtime_of(contract).length for contract in (COMMITTEE, *MARKET))


def part_runtime(part: str) -> RuntimeCode:
    """The code of a part of the market."""
    if part not in MARKET_PARTS:
        raise ValueError(f"the market has no part {part!r}")
    return runtime_of(f"market/{part}")
