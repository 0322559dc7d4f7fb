"""Calls of the market's contracts from typed arguments, reads with typed results, and calldata read back.

Any function of any part is built from its ABI entry: arguments are the dataclasses of ``types``, plain integers, bytes
and addresses, in the order of the interface. ``view`` names the type that comes back, as an annotation names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from troth.protocol.bindings import functions_by_selector
from troth.protocol.bindings.structs import converter, decode_parameters
from troth.protocol.calls import Call, DecodedCall, View, calldata
from troth.protocol.errors import InvalidField
from troth.protocol.market.parts import FACTORY, Part
from troth.protocol.market.types import Contracts
from troth.protocol.types import Address

__all__ = [
    "PartCall",
    "PartView",
    "argument",
    "arguments",
    "build",
    "build_factory",
    "calldata",
    "read_call",
    "view",
]

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class PartCall:
    """A transaction to one contract of a deployment."""

    to: Address
    call: Call

    @classmethod
    def of(cls, view: PartView[Any]) -> PartCall:
        """A read as a call."""
        return cls(view.to, Call(view.view.function, view.view.data))


@dataclass(frozen=True, slots=True)
class PartView(Generic[Made]):
    """A read of one contract of a deployment."""

    to: Address
    view: View[Made]


def build(contracts: Contracts, part: Part, function: str, *arguments: object, value: int = 0) -> PartCall:
    """Call of any function of a part; ``value`` in wei. Raises InvalidField where an argument does not fit."""
    return PartCall(part.of(contracts), Call(function, calldata(part.binding, function, *arguments), value))


def build_factory(factory: Address, function: str, *arguments: object) -> PartCall:
    """Call of any function of the factory."""
    return PartCall(factory, Call(function, calldata(FACTORY, function, *arguments)))


@overload
def view(
    contracts: Contracts, part: Part, function: str, *arguments: object, returns: type[Made]
) -> PartView[Made]: ...
@overload
def view(contracts: Contracts, part: Part, function: str, *arguments: object, returns: Any) -> PartView[Any]: ...
def view(contracts: Contracts, part: Part, function: str, *arguments: object, returns: Any) -> PartView[Any]:
    """Read of any function of a part; ``returns`` is the returned value's type, or a tuple of several values' types."""
    data = calldata(part.binding, function, *arguments)
    return PartView(part.of(contracts), View(function, data, _reader(returns), part.binding))


def read_call(part: Part, data: bytes) -> DecodedCall:
    """Function and values of calldata; raises InvalidField if the part has no such function or form."""
    entry = functions_by_selector(part.binding).get(data[:4])
    if entry is None:
        raise InvalidField(f"No function of the {part.value} has this selector", data[:4], "Check the receiver.")
    return DecodedCall(entry, decode_parameters(entry.inputs, data[4:]))


@overload
def argument(call: DecodedCall, name: str, kind: type[Made]) -> Made: ...
@overload
def argument(call: DecodedCall, name: str, kind: Any) -> Any: ...
def argument(call: DecodedCall, name: str, kind: Any) -> Any:
    """One argument of decoded calldata as the type that an annotation names (a dataclass, Address, tuple[X, ...])."""
    return converter(kind)(call.value(name))


def arguments(call: DecodedCall, names: Sequence[str], kinds: Sequence[Any]) -> tuple[Any, ...]:
    """Several arguments, each as its type."""
    return tuple(argument(call, name, kind) for name, kind in zip(names, kinds, strict=True))


def _reader(returns: Any) -> Any:
    if isinstance(returns, tuple):
        readers = tuple(converter(kind) for kind in returns)
        return lambda *values: tuple(read(value) for read, value in zip(readers, values, strict=True))
    return converter(returns)
