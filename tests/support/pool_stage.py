"""A scheduler behind its real endpoint, and toy nodes that report to it over real channels."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from support.scheduler_stage import Stage

from troth.overlay.channel import Channel
from troth.overlay.identity import TlsIdentity, create_identity
from troth.overlay.operator import Operator
from troth.overlay.server import TlsServer, serving
from troth.protocol.types import Address
from troth.protocol.wire_reports import Report, Reported
from troth.scheduler.api import scheduler_app
from troth.scheduler.assembly import assembled
from troth.scheduler.placement.hardware import ModelShape
from troth.scheduler.pool.class_pool import ClassPool
from troth.scheduler.pool.coordinator import REPORT_LIMITS
from troth.scheduler.pool.pace import Pace
from troth.scheduler.served import Served
from troth.scheduler.service import Scheduler

SHAPE = ModelShape(2, 100, 0, 0, 0)


@dataclass
class Desk:
    """A running scheduler, where it is reached, and a channel for each node that reports."""

    scene: Stage
    scheduler: Scheduler
    identity: TlsIdentity
    port: int
    channels: dict[str, Channel] = field(default_factory=dict)

    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def pool(self) -> ClassPool:
        found = self.scheduler.pools.pool(self.scene.class_id)
        assert found is not None
        return found

    def channel(self, operator: Operator) -> Channel:
        address = self.scene.scheduler.address
        return Channel(self.endpoint, self.identity.spki_sha256, operator, Address(address))

    async def tell(self, node: Any, sequence: int | None = None, **changes: Any) -> Reported:
        """One report of a node, as it is but for `changes`."""
        channel = self.channels.setdefault(node.address, self.channel(node.operator))
        frame = await channel.request(self.report(sequence, **changes))
        assert isinstance(frame.header, Reported)
        return frame.header

    def report(self, sequence: int | None = None, **changes: Any) -> Report:
        plain: dict[str, Any] = {
            "execution_class": self.scene.class_id, "device": "cpu", "memory_bytes": 200, "cache_bytes": 0,
            "first": 0, "end": 2,
            "decode_nanoseconds": 1_000_000, "prefill_nanoseconds": 100_000, "cache_tokens": 1000,
            "running": 0, "movable": False, "leaving": False,
        }  # fmt: skip
        return Report(sequence=time.time_ns() if sequence is None else sequence, **{**plain, **changes})


@asynccontextmanager
async def desk(scene: Stage, *, placing: bool = False, **changes: Any) -> AsyncIterator[Desk]:
    """The scheduler of a stage; with `placing` its ends follow the placement, decided without delay."""
    plain = scene.configuration()
    served = tuple(replace(entry, placing=placing, shape=SHAPE) for entry in plain.served)
    assert all(isinstance(entry, Served) for entry in served)
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(
            assembled(replace(plain, served=served, **changes), scene.keys, pace=lambda: Pace(0.0, 0.0))
        )
        identity = create_identity(scene.folder / "desk")
        server = TlsServer(scheduler_app(scheduler), identity, "127.0.0.1", 0, limits=REPORT_LIMITS)
        await stack.enter_async_context(serving(server))
        running = Desk(scene, scheduler, identity, server.port)
        yield running
        for channel in running.channels.values():
            await channel.close()
