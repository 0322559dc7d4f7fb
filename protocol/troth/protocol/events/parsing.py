"""From a log to its event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args, get_type_hints

from troth.protocol.bindings import Parameter, named
from troth.protocol.bindings.structs import Converter, converter, decode_parameters, field_names
from troth.protocol.errors import InvalidField
from troth.protocol.events.log import Log
from troth.protocol.events.money import MoneyEvent
from troth.protocol.events.registry import RegistryEvent
from troth.protocol.events.reviews import ReviewEvent
from troth.protocol.events.tasks import TaskEvent

Event = RegistryEvent | MoneyEvent | TaskEvent | ReviewEvent
EVENT_TYPES: tuple[type[Event], ...] = get_args(Event)


@dataclass(frozen=True, slots=True)
class _Decoder:
    """How one event is read: which parameters are topics, which are data, and how each becomes a field."""

    name: str
    make: Callable[..., Event]
    topics: tuple[Parameter, ...]
    data: tuple[Parameter, ...]
    order: tuple[int, ...]
    converters: tuple[Converter, ...]


def parse_log(log: Log) -> Event:
    """The event that ``log`` is; raises InvalidField for a log that the contract cannot have emitted."""
    decoder = _decoders().get(log.topics[0]) if log.topics else None
    if decoder is None:
        topic = log.topics[0] if log.topics else b""
        raise InvalidField("No event of the contract has this topic", topic, "Check the contract address and version.")
    if len(log.topics) != len(decoder.topics) + 1:
        name, indexed = decoder.name, len(decoder.topics)
        raise InvalidField(f"{name} has {indexed} indexed fields", log.topics, "Check the node.")
    values = (
        *decode_parameters(decoder.topics, b"".join(log.topics[1:])),
        *decode_parameters(decoder.data, log.data),
    )
    ordered = (convert(values[index]) for index, convert in zip(decoder.order, decoder.converters, strict=True))
    return decoder.make(*ordered, log.meta)


@lru_cache(maxsize=1)
def _decoders() -> dict[bytes, _Decoder]:
    entries = named("event")
    return {entries[kind.__name__].topic: _decoder(kind) for kind in EVENT_TYPES}


def _decoder(kind: type[Event]) -> _Decoder:
    inputs = named("event")[kind.__name__].inputs
    topics = tuple(parameter for parameter in inputs if parameter.indexed)
    data = tuple(parameter for parameter in inputs if not parameter.indexed)
    read = (*topics, *data)
    hints = get_type_hints(kind)
    return _Decoder(
        name=kind.__name__,
        make=kind,
        topics=topics,
        data=data,
        order=tuple(read.index(parameter) for parameter in inputs),
        converters=tuple(converter(hints[name]) for name in field_names(kind)[:-1]),
    )
