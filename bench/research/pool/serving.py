"""What a scheduler of the pool is: where slices lie, and which chain a request gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.trace import Request


@dataclass(frozen=True, slots=True)
class Hop:
    """A stage of a chain: machine by its place, and its layers."""

    place: int
    first: int
    end: int


Route = tuple[Hop, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a machine reports: mean seconds a layer since its last report (None: no batch), requests running now."""

    layer_seconds: float | None
    running: int


class Scheduler(Protocol):
    """Where slices lie and which chain a request gets. Room for cache is the scheduler's to count."""

    name: str
    cache_tokens: dict[int, int]
    """Tokens in each layer, by place of a machine."""

    def choose(self, request: Request) -> Route | None:
        """A chain with room for the request, taken until `release`; None if it must wait."""

    def release(self, request: Request) -> None:
        """The request ended."""

    def report(self, measured: Sequence[Measured], now: float) -> None:
        """What the machines measured, by place."""

    def left(self, place: int, now: float) -> frozenset[int]:
        """A machine is gone. Answers with those whose slices change: they drop what runs, and load new layers."""

    def loading(self, now: float) -> bool:
        """Whether machines load layers, so that a request that no chain can take may wait for them."""
