"""The resident of a running node, put together from its configuration."""

from __future__ import annotations

from collections.abc import Callable

from troth.node.configuration import Configuration
from troth.node.engine.interface import WholeEngine
from troth.node.models.folder import find_model
from troth.node.pool.agreement import agreement_of
from troth.node.pool.contacts import Contacts
from troth.node.pool.hardware import device_kind, weight_bytes
from troth.node.pool.resident import Bench, Lent, Move, Resident
from troth.protocol.sizes import sizes_of
from troth.protocol.wire_reports import SEGMENTS_HELD_LIMIT


def resident_of(
    configuration: Configuration,
    bench: Bench,
    *,
    contacts: Contacts,
    sessions: Callable[[], int],
    move: Move,
    auto: bool,
    most_groups: int = SEGMENTS_HELD_LIMIT,
) -> Resident:
    """Speaks for the node with this bench; moves only with `auto`, and never where the engine holds whole models only.

    Raises ConfigError where [auto] is not clear.
    """
    limit = configuration.auto.memory_bytes
    moves = auto and not isinstance(bench.engine, WholeEngine)
    return Resident(
        bench,
        Lent(weight_bytes(configuration.device, configuration.cache_bytes, limit), configuration.cache_bytes),
        device_kind(configuration.device),
        sizes_of(find_model(configuration.folder, configuration.model).config, bench.engine.dtype),
        contacts=contacts,
        sessions=sessions,
        agreement=agreement_of(configuration, contacts, most_groups) if moves else None,
        move=move,
    )
