"""From a log to its event."""

from __future__ import annotations

from functools import lru_cache
from typing import get_args

from troth.protocol.bindings import named
from troth.protocol.errors import InvalidField
from troth.protocol.events.decoder import Decoder, decoder
from troth.protocol.events.log import Log
from troth.protocol.events.money import MoneyEvent
from troth.protocol.events.registry import RegistryEvent
from troth.protocol.events.reviews import ReviewEvent
from troth.protocol.events.tasks import TaskEvent

Event = RegistryEvent | MoneyEvent | TaskEvent | ReviewEvent
EVENT_TYPES: tuple[type[Event], ...] = get_args(Event)


def parse_log(log: Log) -> Event:
    """The event that ``log`` is; raises InvalidField for a log that the contract cannot have emitted."""
    found = _decoders().get(log.topics[0]) if log.topics else None
    if found is None:
        topic = log.topics[0] if log.topics else b""
        raise InvalidField("No event of the contract has this topic", topic, "Check the contract address and version.")
    return found.event(log)


@lru_cache(maxsize=1)
def _decoders() -> dict[bytes, Decoder[Event]]:
    entries = named("event")
    return {entries[kind.__name__].topic: decoder(kind, entries[kind.__name__]) for kind in EVENT_TYPES}
