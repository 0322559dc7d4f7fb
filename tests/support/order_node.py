"""One node of a network in memory: the shipped service over a toy engine, with records on disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.order_market import (
    DOMAIN,
    NOW,
    SCHEDULER,
    FakeGround,
)
from support.toy_engine import ToyEngine

from troth.node.earning.books import NodeBooks
from troth.node.earning.database import NodeDatabase
from troth.node.judging.margin_pool import MarginPool
from troth.node.orders.context import LendingLimits, NodeContext, Stores, with_first_block
from troth.node.orders.metrics import NodeMetrics
from troth.node.orders.notes import Notes
from troth.node.orders.rejections import Rejections
from troth.node.orders.service import OrderService
from troth.node.orders.traces import TraceStore
from troth.node.orders.words import SignedWords
from troth.protocol import typed_data
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_decoding import HaltedPart, WantedText, WrittenPart, decode_parts, encode_wanted
from troth.protocol.wire_market import Proceed
from troth.transport.errors import remote_failure
from troth.transport.identity import Operator


@dataclass
class Node:
    """One node; ``restart`` is a kill and a start over the same folder."""

    secret: bytes
    folder: Path
    ground: FakeGround
    class_id: Hash32
    limits: LendingLimits = field(default_factory=LendingLimits)
    locks: bool = False
    scale: float = 1.0
    now: float = float(NOW)
    domain: typed_data.Domain = DOMAIN
    make: Callable[..., ToyEngine] = ToyEngine
    started: tuple[ToyEngine, NodeContext, OrderService] | None = None

    @property
    def operator(self) -> Operator:
        return Operator(self.secret, self.domain)

    @property
    def address(self) -> Address:
        return typed_data.address_of(self.secret)

    @property
    def engine(self) -> ToyEngine:
        return self.running[0]

    @property
    def context(self) -> NodeContext:
        return self.running[1]

    @property
    def service(self) -> OrderService:
        return self.running[2]

    @property
    def running(self) -> tuple[ToyEngine, NodeContext, OrderService]:
        """Started when it is first needed: most nodes of a network are never asked."""
        if self.started is None:
            self.started = self.start()
        return self.started

    def start(self) -> tuple[ToyEngine, NodeContext, OrderService]:
        database = NodeDatabase(self.folder / "market.sqlite")
        stores = Stores(
            database,
            SignedWords(database),
            NodeBooks(database),
            Rejections(database),
            TraceStore(self.folder / "traces"),
            MarginPool(self.folder / "margins.sqlite"),
            Notes(database),
        )
        engine = self.make(scale=self.scale)
        context = NodeContext(
            engine,
            self.ground,
            self.operator,
            self.class_id,
            stores,
            limits=self.limits,
            locks=self.locks,
            clock=lambda: self.now,
        )
        return engine, context, OrderService(context, NodeMetrics())

    async def restart(self) -> None:
        """As after kill -9: memory is gone, what was written stays."""
        self.context.stores.close()
        self.context.scribe.shutdown()
        self.started = self.start()
        await self.service.start()

    async def lose(self, *, aware: bool = True) -> None:
        """Its disk is gone: a start with the same key over an empty folder."""
        self.context.stores.close()
        self.context.scribe.shutdown()
        shutil.rmtree(self.folder)
        self.started = self.start()
        if aware:
            engine, context, _ = self.started
            context = await with_first_block(context)
            self.started = engine, context, OrderService(context, NodeMetrics())
        await self.service.start()

    async def ask(self, header: Any, payload: bytes = b"", sender: Address = SCHEDULER) -> Any:
        return await self.service.handle(sender, header, memoryview(payload))

    async def write_on(self, order: bytes, start: int, most: int = 64, sender: Address = SCHEDULER) -> WrittenPart:
        """What it writes alone; raises RemoteFailure where it says why not."""
        reply, data = await self.ask(Proceed(1, most), encode_wanted([WantedText(Hash32(order), start)]), sender)
        (part,) = decode_parts(data, reply.texts)
        if isinstance(part, HaltedPart):
            raise remote_failure("the node", part.failure)
        return part
