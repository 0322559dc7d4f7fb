"""Bindings, dataclasses and the compiled contract agree name by name."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, is_dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from eth_abi import encode
from support import contract_reads

from troth.protocol import committee, contract_errors, organisations, reputation, types
from troth.protocol.bindings import (
    COMMITTEE,
    DISPUTES,
    EVIDENCE,
    IMPRINTS,
    MARKET,
    ORGANISATIONS,
    REPUTATION,
    STEPS,
    Parameter,
    entries,
    named,
    read_resource,
)
from troth.protocol.contract_errors import explained
from troth.protocol.hashing import keccak256
from troth.protocol.market import proceedings, reverts, signed, token_proofs
from troth.protocol.market import types as market_types
from troth.protocol.runtime_code import runtime_of
from troth.protocol.typed_data import camel_case

ROOT = Path(__file__).resolve().parent.parent.parent
BESIDE_A_MARKET = (COMMITTEE, REPUTATION, ORGANISATIONS, DISPUTES, STEPS, IMPRINTS, EVIDENCE)
CONTRACTS = (COMMITTEE, REPUTATION, ORGANISATIONS, *MARKET)
NOT_OURS = {("market/lens", ""), ("market/lens", "page"), ("market/registry", ""), ("market/judgement", "finding")}
"""What only explorers and the contracts themselves read."""
MODULES = (types, market_types, signed, proceedings, committee, reputation, organisations, token_proofs, contract_reads)
STRUCTS = tuple(
    kind for module in MODULES for kind in vars(module).values() if isinstance(kind, type) and is_dataclass(kind)
)


def solidity_names(kind: type) -> list[str]:
    return [camel_case(one.name) for one in fields(kind)]


def check_struct(parameter: Parameter) -> None:
    """One of our dataclasses has exactly the fields of this struct, in its order, and of its types."""
    names = [component.name for component in parameter.components]
    kind = next((kind for kind in STRUCTS if solidity_names(kind) == names), None)
    assert kind is not None, parameter
    hints = get_type_hints(kind)
    for component, one in zip(parameter.components, fields(kind), strict=True):
        if component.components:
            check_struct(component)
        else:
            assert fits(component.type, hints[one.name]), (kind, component)


def fits(solidity: str, hint: Any) -> bool:
    """Whether values of a Solidity type decode into a field with this annotation."""
    if solidity.endswith("[]"):
        return getattr(hint, "__origin__", None) is tuple and fits(solidity[:-2], hint.__args__[0])
    if solidity.startswith("uint"):
        return hint is int or (isinstance(hint, type) and issubclass(hint, IntEnum))
    allowed = {"bytes32": types.Hash32, "address": types.Address, "bool": bool, "string": str, "bytes": bytes}
    return hint is allowed[solidity]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_every_struct_has_a_dataclass(contract: str) -> None:
    for entry in entries(contract):
        for parameter in (*entry.inputs, *entry.outputs):
            if parameter.components and (contract, parameter.name) not in NOT_OURS:
                check_struct(parameter)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_no_name_is_overloaded(contract: str) -> None:
    for kind in ("function", "event"):
        names = [entry.name for entry in entries(contract) if entry.kind == kind]
        assert len(names) == len(set(names))


def some(parameter: Parameter) -> Any:
    """Any value of a parameter's type."""
    if parameter.type.endswith("[]"):
        return []
    if parameter.components:
        return tuple(some(component) for component in parameter.components)
    simple = {"address": "0x" + "07" * 20, "bool": True, "string": "x", "bytes": b"x", "bytes32": bytes(31) + b"\7"}
    return simple.get(parameter.type, 7)


@pytest.mark.parametrize(
    ("remedies", "contracts"),
    [(contract_errors.REMEDIES, BESIDE_A_MARKET), (reverts.REMEDIES, MARKET)],
    ids=["committee", "market"],
)
def test_remedies_are_for_errors_that_exist_and_fit_their_arguments(remedies: Any, contracts: tuple[str, ...]) -> None:
    errors = {name: entry for contract in contracts for name, entry in named("error", contract).items()}
    assert set(remedies) <= set(errors)
    for name in remedies:
        entry = errors[name]
        body = encode([parameter.type for parameter in entry.inputs], [some(one) for one in entry.inputs])
        decoded = explained(entry.selector + body, {entry.selector: entry}, remedies)
        assert decoded.name == name
        assert decoded.remedy.endswith(".")


@pytest.mark.parametrize("contract", CONTRACTS)
def test_interface_names_the_bytecode_it_belongs_to(contract: str) -> None:
    text = (ROOT / f"protocol/troth/protocol/bindings/{contract}.bytecode.json").read_bytes()
    assert read_resource(f"{contract}.json")["bytecodeHash"] == "0x" + keccak256(text).hex()


@pytest.mark.skipif(not (ROOT / "artifacts/contracts/market/Bank.sol/Bank.json").exists(), reason="run hardhat build")
def test_bindings_are_those_of_the_compiled_contract() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate_bindings"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


@pytest.mark.skipif(not (ROOT / "artifacts/contracts/market/Bank.sol/Bank.json").exists(), reason="run hardhat build")
@pytest.mark.parametrize("contract", CONTRACTS)
def test_code_is_known_whatever_its_immutables_are_and_by_every_other_byte(contract: str) -> None:
    name = contract.removeprefix("market/").capitalize()
    folder = {COMMITTEE: "overlay", REPUTATION: "reputation", ORGANISATIONS: "organisations"}.get(contract, "market")
    artifact = json.loads((ROOT / f"artifacts/contracts/{folder}/{name}.sol/{name}.json").read_text())
    code, runtime = bytes.fromhex(artifact["deployedBytecode"][2:]), runtime_of(contract)
    filled = bytearray(code)
    for start in runtime.immutables:
        # PUSH32: what follows is data, and no immutable can hide an instruction.
        assert code[start - 1] == 0x7F
        filled[start : start + 32] = keccak256(b"%d" % start)
    assert runtime.fits(bytes(filled))
    assert not runtime.fits(code + b"\0")
    assert not runtime.fits(code[:-1])
    words = {place for start in runtime.immutables for place in range(start, start + 32)}
    for place in (one for one in range(0, len(code), 97) if one not in words):
        changed = bytearray(code)
        changed[place] ^= 1
        assert not runtime.fits(bytes(changed)), place
