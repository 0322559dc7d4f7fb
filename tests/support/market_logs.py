"""Events of the market as logs: made-up values of every type, and the encoding that a contract would emit."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Any, get_args, get_origin, get_type_hints

from troth.protocol.bindings import named
from troth.protocol.bindings.structs import encode_parameters
from troth.protocol.hashing import keccak256
from troth.protocol.logs import EventLog, LogMeta
from troth.protocol.market.events import EVENTS_OF, Event
from troth.protocol.market.parts import FACTORY as FACTORY_BINDING
from troth.protocol.market.parts import Part
from troth.protocol.market.types import Contracts
from troth.protocol.types import Address, Hash32, address_from_bytes


def address(number: int) -> Address:
    """An account that depends on its number alone."""
    return address_from_bytes(keccak256(b"account %d" % number)[12:])


CONTRACTS = Contracts(*(address(number) for number in range(len(fields(Contracts)))))
FACTORY = address(100)
META = LogMeta(7, 3, Hash32(b"\x77" * 32), Hash32(b"\x78" * 32))


def made(hint: Any, seed: int) -> Any:
    """A value of an annotation."""
    if hasattr(hint, "__metadata__"):
        width = hint.__metadata__[0].name
        return b"some bytes" if width == "bytes" else seed % (1 << int(width.removeprefix("uint")))
    if get_origin(hint) is tuple:
        return tuple(made(get_args(hint)[0], seed + number) for number in range(2))
    if hint is LogMeta:
        return META
    if isinstance(hint, type) and is_dataclass(hint):
        if hint.__name__ == "Segment":
            return hint(1, 2)
        hints = get_type_hints(hint, include_extras=True)
        return hint(**{one.name: made(hints[one.name], seed + number) for number, one in enumerate(fields(hint))})
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return list(hint)[seed % len(hint)]
    known: dict[Any, Any] = {int: seed % 200, bool: bool(seed % 2), str: f"text {seed}", bytes: b"some bytes"}
    known |= {Hash32: Hash32(keccak256(b"%d" % seed)), Address: address(seed)}
    return known[hint]


def sample(kind: type[Event], seed: int = 5) -> Event:
    """An event with made-up values."""
    event: Event = made(kind, seed)
    return event


def place_of(kind: type[Any]) -> tuple[str, Address]:
    """Binding and address of the contract that emits an event."""
    binding = next(binding for binding, kinds in EVENTS_OF.items() if kind in kinds)
    if binding == FACTORY_BINDING:
        return binding, FACTORY
    return binding, next(part for part in Part if part.binding == binding).of(CONTRACTS)


def log_of(event: Event) -> EventLog:
    """The log that a contract would have emitted."""
    binding, emitter = place_of(type(event))
    entry = named("event", binding)[type(event).__name__]
    values = [getattr(event, one.name) for one in fields(event)][:-1]
    pairs = list(zip(entry.inputs, values, strict=True))
    topics = [encode_parameters([parameter], [value]) for parameter, value in pairs if parameter.indexed]
    plain = [(parameter, value) for parameter, value in pairs if not parameter.indexed]
    data = encode_parameters([parameter for parameter, _ in plain], [value for _, value in plain])
    return EventLog(emitter, (Hash32(entry.topic), *(Hash32(topic) for topic in topics)), data, event.meta)
