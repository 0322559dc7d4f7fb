"""What every handler works with: engine, chain view, keys, records; and the one thread that writes records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from troth.node.dispute_policy import DisputePolicy
from troth.node.engine.interface import Engine
from troth.node.margin_pool import MarginPool
from troth.node.pool.meter import Meter
from troth.node.service.seat import Post
from troth.node.signing_record import SigningRecord, Subject
from troth.node.traces import TraceStore
from troth.node.view import ChainView
from troth.overlay.operator import Operator
from troth.protocol import typed_data
from troth.protocol.types import Hash32

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a node lends to schedulers.

    Args:
        works: sessions at once.
        positions: rows of one trace.
        idle_seconds: a session without a message for so long is dropped.
    """

    works: int = 256
    positions: int = 8192
    idle_seconds: float = 900.0


@dataclass(frozen=True, slots=True)
class Bench:
    """A node's tools. `clock` gives Unix seconds."""

    engine: Engine
    view: ChainView
    operator: Operator
    execution_class: Hash32
    record: SigningRecord
    traces: TraceStore
    margins: MarginPool
    limits: Limits = field(default_factory=Limits)
    disputes: DisputePolicy = field(default_factory=DisputePolicy)
    meter: Meter = field(default_factory=Meter)
    clock: Callable[[], float] = time.time
    scribe: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="records"))

    @property
    def post(self) -> Post:
        """What the node offers."""
        return Post(self.operator.address, self.execution_class, self.limits.positions)

    async def write(self, job: Callable[[], Result]) -> Result:
        """Run a job on the thread that owns the records; it waits for the disk."""
        return await asyncio.get_running_loop().run_in_executor(self.scribe, job)

    async def sign(self, subject: Subject, message: object) -> bytes:
        """Signature over a message, recorded first; see `SigningRecord.sign_once`."""
        digest = typed_data.digest(message, self.operator.domain)
        return await self.write(lambda: self.record.sign_once(subject, digest, lambda: self.operator.sign(message)))

    async def close(self) -> None:
        """Stop the engine and close the records."""
        await self.engine.close()
        await self.write(self.record.close)
        await self.write(self.traces.close)
        await self.write(self.margins.close)
        self.scribe.shutdown()
