"""What every handler of orders works with: engine, chain, keys, records, and the one thread that writes records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from troth.node.earning.books import NodeBooks, NodeLedger
from troth.node.earning.database import NodeDatabase
from troth.node.engine.interface import Engine
from troth.node.judging.margin_pool import MarginPool
from troth.node.orders.ground import Ground, ledger_of
from troth.node.orders.notes import Notes
from troth.node.orders.rejections import Rejections
from troth.node.orders.traces import TraceStore
from troth.node.orders.words import SignedWords
from troth.node.pool.meter import Meter
from troth.protocol.market.views import first_reference_block, parameters_of
from troth.protocol.types import Address, Hash32
from troth.transport.identity import Operator

Result = TypeVar("Result")
RECORDS = "market.sqlite"


@dataclass(frozen=True, slots=True)
class LendingLimits:
    """What a node lends to schedulers.

    Args:
        works: sessions at once.
        positions: rows of one trace.
        idle_seconds: a session without a message for so long is dropped.
        unpaid: asset units of one scheduler's work that may be unpaid at once.
        trace_bytes: traces on disk; no work is begun beyond, since a trace that may be asked for is never dropped.
    """

    works: int = 256
    positions: int = 8192
    idle_seconds: float = 900.0
    unpaid: int = 10**18
    trace_bytes: int = 8 << 30


@dataclass(frozen=True, slots=True)
class Stores:
    """The node's records on disk."""

    database: NodeDatabase
    words: SignedWords
    books: NodeBooks
    rejections: Rejections
    traces: TraceStore
    margins: MarginPool
    notes: Notes

    def close(self) -> None:
        """Close them all."""
        self.traces.close()
        self.margins.close()
        self.database.close()


@dataclass(frozen=True, slots=True)
class NodeContext:
    """A node's tools. ``clock`` gives Unix seconds; ``locks``: a rejecting verdict locks L, which suspends the node.

    ``first``: the oldest reference block of an order that is served or checked (`with_first_block`).
    """

    engine: Engine
    ground: Ground
    operator: Operator
    execution_class: Hash32
    stores: Stores
    limits: LendingLimits = field(default_factory=LendingLimits)
    locks: bool = False
    first: int = 0
    meter: Meter = field(default_factory=Meter)
    clock: Callable[[], float] = time.time
    scribe: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="records"))

    @property
    def me(self) -> Address:
        """This node's operator."""
        return self.operator.address

    def ledger(self) -> NodeLedger:
        """What books depend on, as it is now."""
        return ledger_of(self.ground, self.me)

    async def write(self, job: Callable[[], Result]) -> Result:
        """Run a job on the thread that owns the records; it waits for the disk."""
        return await asyncio.get_running_loop().run_in_executor(self.scribe, job)

    async def close(self) -> None:
        """Stop the engine and close the records."""
        await self.engine.close()
        await self.write(self.stores.close)
        self.scribe.shutdown()


async def with_first_block(context: NodeContext) -> NodeContext:
    """The context of a node that takes no order which it may have signed before its records began."""
    ground, words = context.ground, context.stores.words
    age = parameters_of(ground.state).reference_age
    begun = await context.write(lambda: words.beginning(ground.block, age))
    return replace(context, first=first_reference_block(ground.state, context.me, begun, ground.block))


def begins_later(context: NodeContext | None, block: int) -> list[str]:
    """Why no work comes yet to a node whose records began after it was registered."""
    if context is None or block > context.first:
        return []
    return [f"its records are new, and older ones may be lost: it takes orders over blocks from {context.first} on"]


def open_stores(folder: Path) -> Stores:
    """The node's records in its folder; traces are freed by what the chain says, never by their age."""
    database = NodeDatabase(folder / RECORDS)
    return Stores(
        database=database,
        words=SignedWords(database),
        books=NodeBooks(database),
        rejections=Rejections(database),
        traces=TraceStore(folder / "market-traces"),
        margins=MarginPool(folder / "margins.sqlite"),
        notes=Notes(database),
    )
