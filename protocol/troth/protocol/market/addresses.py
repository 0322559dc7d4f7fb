"""Where a deployment's contracts lie: it follows from the factory, the parameters and the shipped bytecode alone.

So nobody can put a false part behind a true name: who knows factory and parameters computes all addresses.
"""

from __future__ import annotations

from functools import lru_cache

from troth.protocol.bindings import MARKET_PARTS, named, read_resource
from troth.protocol.bindings.structs import encode_values
from troth.protocol.hashing import keccak256
from troth.protocol.market.messages import state_hash
from troth.protocol.market.parts import FACTORY
from troth.protocol.market.types import Contracts, Parameters
from troth.protocol.types import Address, Hash32, address_from_bytes, address_to_bytes


@lru_cache(maxsize=16)
def creation_code(part: str) -> bytes:
    """The shipped bytecode that creates a part."""
    return bytes.fromhex(read_resource(f"market/{part}.bytecode.json")["bytecode"].removeprefix("0x"))


def code_hashes() -> tuple[Hash32, ...]:
    """Hashes of all parts' bytecode, in the factory's order: its constructor takes them."""
    return tuple(Hash32(keccak256(creation_code(part))) for part in MARKET_PARTS)


def factory_code() -> bytes:
    """What creates the factory of exactly the shipped parts."""
    inputs = named("constructor", FACTORY)["constructor"].inputs
    arguments = encode_values([parameter.type for parameter in inputs], [list(code_hashes())])
    return creation_code("deployment") + arguments


def deployment_id(parameters: Parameters) -> Hash32:
    """keccak256(abi.encode(parameters)): what the addresses are salted with."""
    return state_hash(parameters)


def contracts_of(factory: Address, parameters: Parameters) -> Contracts:
    """The addresses of a factory's deployment with these parameters (CREATE2)."""
    salt = deployment_id(parameters)
    return Contracts(*(_create2(factory, salt, code_hash) for code_hash in code_hashes()))


def _create2(factory: Address, salt: Hash32, code_hash: Hash32) -> Address:
    return address_from_bytes(keccak256(b"\xff" + address_to_bytes(factory) + salt + code_hash)[12:])
