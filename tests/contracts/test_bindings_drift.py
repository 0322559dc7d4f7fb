"""Bindings, dataclasses and the compiled contract agree name by name."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from enum import IntEnum
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from troth.protocol import contract_types, task, types
from troth.protocol.bindings import Entry, Parameter, entries, named, read_resource
from troth.protocol.calls import registry, reviews, tasks, views
from troth.protocol.contract_errors import REMEDIES, decode_error
from troth.protocol.events import EVENT_TYPES
from troth.protocol.hashing import keccak256
from troth.protocol.typed_data import camel_case

ROOT = Path(__file__).resolve().parent.parent.parent
RENAMED = {"definition": "class"}
"""Python keywords cannot name a field."""

STRUCTS = (
    types.ModelDescriptor,
    types.ExecutionClass,
    types.Segment,
    types.Order,
    types.Row,
    task.Terms,
    task.Progress,
    task.Task,
    contract_types.Parameters,
    contract_types.Account,
    contract_types.Rules,
    contract_types.NodeRegistration,
    contract_types.SchedulerRegistration,
    contract_types.VrfProof,
    contract_types.CommitSubmission,
    contract_types.Opening,
    contract_types.Settled,
)


def solidity_names(kind: type) -> list[str]:
    return [RENAMED.get(one.name, camel_case(one.name)) for one in fields(kind)]


def check_struct(parameter: Parameter) -> None:
    """One of our dataclasses has exactly the fields of this struct, in its order, and of its types."""
    names = [component.name for component in parameter.components]
    (kind,) = [kind for kind in STRUCTS if solidity_names(kind) == names]
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


def test_every_event_has_a_dataclass_with_its_fields() -> None:
    assert {kind.__name__ for kind in EVENT_TYPES} == set(named("event"))
    for kind in EVENT_TYPES:
        inputs = named("event")[kind.__name__].inputs
        names = solidity_names(kind)
        assert names == [*(parameter.name for parameter in inputs), "meta"], kind
        for parameter, one in zip(inputs, fields(kind), strict=False):
            if not parameter.components:
                assert fits(parameter.type, get_type_hints(kind)[one.name]), (kind, parameter)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: f"{entry.kind}-{entry.name}")
def test_every_struct_has_a_dataclass(entry: Entry) -> None:
    for parameter in (*entry.inputs, *entry.outputs):
        if parameter.components:
            check_struct(parameter)


def test_every_function_has_a_builder() -> None:
    built = {
        camel_case(name)
        for module in (registry, tasks, reviews, views)
        for name in vars(module)
        if callable(getattr(module, name))
    }
    renamed = {"open": "openTask"}
    missing = {name for name in named("function") if renamed.get(name, name) not in built}
    assert missing == {"groupId", "coldPath", "reviewPath"}, "identifiers.group_id computes the first; code addresses"


def test_no_name_is_overloaded() -> None:
    for kind in ("function", "event"):
        names = [entry.name for entry in entries() if entry.kind == kind]
        assert len(names) == len(set(names))


def test_remedies_are_for_errors_that_exist_and_fit_their_arguments() -> None:
    errors = named("error")
    assert set(REMEDIES) <= set(errors)
    for name in REMEDIES:
        entry = errors[name]
        words = b"".join(bytes(31) + b"\x07" if "string" not in one.type else (32).to_bytes(32) for one in entry.inputs)
        tail = (1).to_bytes(32) + b"x".ljust(32, b"\0") if any(one.type == "string" for one in entry.inputs) else b""
        decoded = decode_error(entry.selector + words + tail)
        assert decoded.name == name
        assert decoded.remedy.endswith(".")


def test_interface_names_the_bytecode_it_belongs_to() -> None:
    text = (ROOT / "protocol/troth/protocol/bindings/troth.bytecode.json").read_bytes()
    assert read_resource("troth.json")["bytecodeHash"] == "0x" + keccak256(text).hex()


@pytest.mark.skipif(not (ROOT / "artifacts/contracts/Troth.sol/Troth.json").exists(), reason="run hardhat build")
def test_bindings_are_those_of_the_compiled_contract() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate_bindings"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
