"""A log as it comes from a node, and how it becomes the dataclass of its event: derived from the ABI's entry and the
dataclass's annotations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_type_hints

from troth.protocol.bindings import AbiEntry, Parameter
from troth.protocol.bindings.structs import Converter, converter, decode_announced, field_names
from troth.protocol.errors import InvalidField
from troth.protocol.types import Address, Hash32

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, order=True)
class LogMeta:
    """Place of a log; ``log_index`` counts within its block."""

    block: int
    log_index: int
    block_hash: Hash32
    transaction: Hash32


@dataclass(frozen=True, slots=True)
class EventLog:
    """Topics and data of one log of the contract at ``address``, not decoded."""

    address: Address
    topics: tuple[Hash32, ...]
    data: bytes
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class EventDecoder(Generic[Made]):
    """How one event is read: which parameters are topics, which are data, and how each becomes a field."""

    name: str
    make: Callable[..., Made]
    topics: tuple[Parameter, ...]
    data: tuple[Parameter, ...]
    order: tuple[int, ...]
    converters: tuple[Converter, ...]

    def event(self, log: EventLog) -> Made:
        """The event; raises InvalidField for a log that the contract cannot have emitted."""
        if len(log.topics) != len(self.topics) + 1:
            raise InvalidField(f"{self.name} has {len(self.topics)} indexed fields", log.topics, "Check the node.")
        values = (
            *decode_announced(self.topics, b"".join(log.topics[1:])),
            *decode_announced(self.data, log.data),
        )
        ordered = (convert(values[index]) for index, convert in zip(self.order, self.converters, strict=True))
        return self.make(*ordered, log.meta)


def decoder(kind: type[Made], entry: AbiEntry) -> EventDecoder[Made]:
    """The decoder of ``entry`` into ``kind``, whose fields are the event's in order, and ``meta``."""
    topics = tuple(parameter for parameter in entry.inputs if parameter.indexed)
    data = tuple(parameter for parameter in entry.inputs if not parameter.indexed)
    read = (*topics, *data)
    hints = get_type_hints(kind)
    names = field_names(kind)[:-1]
    if len(names) != len(entry.inputs):
        raise InvalidField(f"{entry.name} has {len(entry.inputs)} fields", len(names), "Regenerate the bindings.")
    made: Any = kind
    return EventDecoder(
        name=entry.name,
        make=made,
        topics=topics,
        data=data,
        order=tuple(read.index(parameter) for parameter in entry.inputs),
        converters=tuple(converter(hints[name]) for name in names),
    )
