"""Members, chains and reports for tests of the pool, without any network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from troth.protocol.types import Address, Segment
from troth.protocol.wire_reports import Report
from troth.routing.placement.hardware import ModelShape
from troth.scheduler.pool.chain_side import ChainSide
from troth.scheduler.pool.deciding import ReportingNode

LAYERS = 12
SHAPE = ModelShape(LAYERS, 100, 0, 0, 0)
CLASS = bytes(32)


def name(number: int) -> Address:
    return Address(f"0x{number:040x}")


def member(
    number: int, first: int, end: int, *, room: int = LAYERS, seconds: float = 0.01, movable: bool = True
) -> ReportingNode:
    return ReportingNode(name(number), room * SHAPE.layer_bytes, seconds, first, end, movable)


def side(
    slices: Mapping[int, tuple[int, int]],
    groups: Mapping[tuple[int, int], Iterable[int]] | None = None,
    *,
    parties: int = 2,
    kept: Iterable[int] = (),
) -> ChainSide:
    """A chain's side; without groups, everyone is in the group of its own slice."""
    joined: dict[tuple[int, int], list[int]] = {}
    for number, window in slices.items():
        joined.setdefault(window, []).append(number)
    return ChainSide(
        block=7,
        layers=LAYERS,
        dtype=0,
        parties=parties,
        slices={name(number): Segment(*window) for number, window in slices.items()},
        groups={
            Segment(*window): frozenset(name(number) for number in numbers)
            for window, numbers in (joined if groups is None else groups).items()
        },
        kept=frozenset(name(number) for number in kept),
    )


def report(sequence: int, first: int, end: int, **changes: object) -> Report:
    fields: dict[str, object] = {
        "execution_class": CLASS,
        "sequence": sequence,
        "device": "cpu",
        "memory_bytes": LAYERS * SHAPE.layer_bytes,
        "cache_bytes": 0,
        "first": first,
        "end": end,
        "decode_nanoseconds": 10_000_000,
        "prefill_nanoseconds": 1_000_000,
        "cache_tokens": 1000,
        "running": 0,
        "movable": True,
        "leaving": False,
    }
    return Report(**{**fields, **changes})  # type: ignore[arg-type]
