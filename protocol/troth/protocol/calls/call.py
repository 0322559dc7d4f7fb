"""A call of the contract: its name, its calldata, the wei that go with it; and how calldata and results are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from troth.protocol.bindings import TROTH, Entry, functions_by_selector, named
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
    contract: str = TROTH

    def result(self, returned: bytes) -> Result:
        """The result from the bytes of ``eth_call``; raises InvalidField if they are no encoding of it."""
        return self.read(*decode_parameters(named("function", self.contract)[self.function].outputs, returned))


@dataclass(frozen=True, slots=True)
class DecodedCall:
    """Calldata read back: values as the ABI codec gives them, in the order of the function's inputs."""

    entry: Entry
    values: tuple[Any, ...]

    def value(self, name: str) -> Any:
        """The argument called ``name`` in Solidity."""
        for parameter, value in zip(self.entry.inputs, self.values, strict=True):
            if parameter.name == name:
                return value
        raise InvalidField(f"{self.entry.name} has no argument of this name", name, "See the contract's interface.")


def build(function: str, *arguments: object, value: int = 0) -> Call:
    """Call of ``function`` with typed arguments."""
    return Call(function, calldata(function, *arguments), value)


def calldata(function: str, *arguments: object, contract: str = TROTH) -> bytes:
    """Selector and encoded arguments."""
    entry = named("function", contract)[function]
    if len(arguments) != len(entry.inputs):
        raise InvalidField(
            f"{entry.signature} has {len(entry.inputs)} arguments", len(arguments), "Regenerate the bindings."
        )
    return entry.selector + encode_parameters(entry.inputs, arguments)


def decode_call(data: bytes) -> DecodedCall:
    """Function and values of calldata; raises InvalidField if the contract has no such function or form."""
    entry = functions_by_selector().get(data[:4])
    if entry is None:
        raise InvalidField(
            "No function of the contract has this selector", data[:4], "Check the transaction's receiver."
        )
    return DecodedCall(entry, decode_parameters(entry.inputs, data[4:]))
