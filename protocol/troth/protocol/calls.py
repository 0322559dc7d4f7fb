"""A call of the contract: its name, its calldata, the wei that go with it; and how calldata and results are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from troth.protocol.bindings import AbiEntry, named
from troth.protocol.bindings.structs import decode_parameters, encode_parameters
from troth.protocol.errors import InvalidField

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Call:
    """A transaction's payload; ``value`` in wei."""

    function: str
    data: bytes
    value: int = 0


@dataclass(frozen=True, slots=True)
class View(Generic[Result]):
    """A read; ``read`` turns the returned values into the result."""

    function: str
    data: bytes
    read: Callable[..., Result]
    contract: str

    def result(self, returned: bytes) -> Result:
        """The result from the bytes of ``eth_call``; raises InvalidField if they are no encoding of it."""
        return self.read(*decode_parameters(named("function", self.contract)[self.function].outputs, returned))


@dataclass(frozen=True, slots=True)
class DecodedCall:
    """Calldata read back: values as the ABI codec gives them, in the order of the function's inputs."""

    entry: AbiEntry
    values: tuple[Any, ...]

    def value(self, name: str) -> Any:
        """The argument called ``name`` in Solidity."""
        for parameter, value in zip(self.entry.inputs, self.values, strict=True):
            if parameter.name == name:
                return value
        raise InvalidField(f"{self.entry.name} has no argument of this name", name, "See the contract's interface.")


def calldata(contract: str, function: str, *arguments: object) -> bytes:
    """Selector and encoded arguments of a contract's function; raises InvalidField where they do not fit it."""
    entry = named("function", contract).get(function)
    if entry is None:
        raise InvalidField(f"{contract} has no such function", function, "See the contract's interface.")
    if len(arguments) != len(entry.inputs):
        raise InvalidField(f"{entry.signature} takes {len(entry.inputs)} arguments", len(arguments), "Pass them all.")
    return entry.selector + encode_parameters(entry.inputs, arguments)
