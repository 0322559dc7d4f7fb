"""The dataclasses of the market have the fields of the interfaces' structs, in order, with their Solidity types."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from enum import IntEnum
from pathlib import Path
from typing import get_type_hints

import pytest

from troth.protocol.market import proceedings, signed, types
from troth.protocol.market.messages import abi_type
from troth.protocol.typed_data import camel_case

INTERFACES = Path(__file__).parents[2] / "contracts" / "market" / "interfaces"
FILES = ("MarketTypes.sol", "Signed.sol", "Proceedings.sol")
SOURCE = re.sub(r"//[^\n]*", "", "".join((INTERFACES / name).read_text("utf-8") for name in FILES))
STRUCTS = dict(re.findall(r"struct (\w+) \{(.*?)\}", SOURCE, re.DOTALL))
ENUMS = {name: re.findall(r"\w+", body) for name, body in re.findall(r"enum (\w+) \{(.*?)\}", SOURCE, re.DOTALL)}
OURS = {**vars(types), **vars(signed), **vars(proceedings)}
NOT_OURS = {"ModelDescriptor", "Segment"}
"""Structs that both ways share, kept in ``troth.protocol.types``."""
CALLED = {"Entry": "GroupEntry"}
"""Structs that say here whose they are: an entry alone is where the overlay reaches somebody (docs/glossary.md)."""


def _declared(body: str) -> list[tuple[str, str]]:
    pairs = re.findall(r"([\w\[\]]+)\s+(\w+)\s*;", body)
    return [(name, kind) for kind, name in pairs]


def _flat(kind: str) -> str:
    """A Solidity type with enums and structs written as the ABI writes them."""
    base, array = (kind[:-2], "[]") if kind.endswith("[]") else (kind, "")
    if base in ENUMS:
        base = "uint8"
    elif base in STRUCTS:
        base = f"({','.join(_flat(member) for _, member in _declared(STRUCTS[base]))})"
    return base + array


@pytest.mark.parametrize("name", sorted(set(STRUCTS) - NOT_OURS))
def test_struct_is_that_of_the_contracts(name: str) -> None:
    kind = OURS[CALLED.get(name, name)]
    assert is_dataclass(kind)
    hints = get_type_hints(kind, include_extras=True)
    ours = [(camel_case(field.name), abi_type(hints[field.name])) for field in fields(kind)]
    assert ours == [(member, _flat(written)) for member, written in _declared(STRUCTS[name])]


@pytest.mark.parametrize("name", sorted(ENUMS))
def test_enum_is_that_of_the_contracts(name: str) -> None:
    kind = OURS[name]
    assert issubclass(kind, IntEnum)
    assert [member.name for member in kind] == [re.sub(r"(?<!^)(?=[A-Z])", "_", word).upper() for word in ENUMS[name]]


def test_nothing_is_missing() -> None:
    assert len(STRUCTS) > 30
    assert len(ENUMS) == 10
