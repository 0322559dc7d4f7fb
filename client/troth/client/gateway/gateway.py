"""A gateway: what its routes ask of it, from a request that was read to a receipt."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from troth.client.gateway.catalogue import model_json, require_model
from troth.client.gateway.completion import Completion
from troth.client.gateway.connection import Connection
from troth.client.gateway.embeddings import EmbeddingShapes
from troth.client.gateway.errors import FailureCost, HopFailed
from troth.client.gateway.intake import Intake
from troth.client.gateway.ledger import CompletionLedger
from troth.client.gateway.line import WaitingLine
from troth.client.gateway.message_shapes import MessageShapes
from troth.client.gateway.metrics import GatewayMetrics
from troth.client.gateway.receipts import receipt_json
from troth.client.gateway.request import Defaults
from troth.client.gateway.response_request import StoredResponses
from troth.client.gateway.response_shapes import ResponseShapes
from troth.client.gateway.shapes import ReplyShapes
from troth.client.orders.running import Running
from troth.overlay.circuits.circuit import Circuit
from troth.overlay.paths.pool import CircuitPool

HOPS = ("guard", "middle", "proxy")


@dataclass(kw_only=True)
class Gateway:
    """What the routes work with. `base` is its own address, known once it listens.

    Args:
        keep_alive: seconds after which a stream without news carries a comment.
        body_seconds: for which the body of a request is waited for.
    """

    connection: Connection[Running]
    intake: Intake
    metrics: GatewayMetrics
    defaults: Defaults
    ledger: CompletionLedger
    keep_alive: float
    body_seconds: float
    base: str = ""
    created: int = field(default_factory=lambda: int(time.time()))
    stopping: bool = False
    delivered: list[Completion] = field(default_factory=list)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    stored: StoredResponses = field(default_factory=StoredResponses)
    line: WaitingLine = field(default_factory=WaitingLine)

    def reasons(self) -> list[str]:
        """Why it is not ready."""
        return ["the gateway is stopping"] if self.stopping else self.connection.reasons()

    def shapes(self, completion: Completion) -> ReplyShapes:
        """The JSON objects of a completion."""
        if completion.wanted.kind == "response":
            return ResponseShapes(completion, self.base, self.stored)
        by_kind = {"message": MessageShapes, "embedding": EmbeddingShapes}
        return by_kind.get(completion.wanted.kind, ReplyShapes)(completion, self.base)

    async def models(self) -> list[dict[str, Any]]:
        """What may be asked, as /v1/models shows it."""
        async with self.connection.lease() as held:
            return [model_json(held.session, await held.session.session.ready(), self.created)]

    async def model(self, name: str) -> dict[str, Any]:
        """One of them; NotFound."""
        async with self.connection.lease() as held:
            offer = await held.session.session.ready()
            require_model(offer, name)
            return model_json(held.session, offer, self.created)

    async def paths(self) -> dict[str, Any]:
        """The circuits that requests go over."""
        async with self.connection.lease() as held:
            return paths_json(held.session.session.pool, held.session.session.mode)

    async def receipt(self, identifier: str) -> dict[str, Any]:
        """A completion's receipt; NotFound."""
        async with self.connection.lease() as held:
            return receipt_json(self.ledger, held.session, identifier)

    async def drain(self) -> None:
        """Take no more requests and wait until every answer under way has been handed over.

        Where that is not waited for, each of them ends in an error: the connection alone would end without a word.
        """
        self.stopping = True
        try:
            if self.delivered:
                await self.idle.wait()
        except asyncio.CancelledError:
            for completion in self.delivered:
                completion.cut(_stopped(completion))
            raise

    def begin_delivery(self, completion: Completion) -> None:
        """An answer is being handed over."""
        self.delivered.append(completion)
        self.idle.clear()

    def end_delivery(self, completion: Completion) -> None:
        """It is over."""
        self.delivered.remove(completion)
        if not self.delivered:
            self.idle.set()


def _stopped(completion: Completion) -> HopFailed:
    remedy = (
        "The order goes on, and is owed: once the gateway was started again, "
        f"GET /v1/receipts/{completion.identifier} has its answer."
    )
    return HopFailed(
        "The gateway was stopped before the answer was whole",
        "",
        remedy,
        FailureCost("unknown", completion.tasks),
        hop="gateway",
        status=503,
        code="gateway_stopped",
    )


def paths_json(pool: CircuitPool | None, mode: str) -> dict[str, Any]:
    """Every live circuit from guard to proxy; without the overlay it says that the scheduler sees this machine.

    `mode` says where requests enter: at the "scheduler", or at a node ("direct").
    """
    if pool is None:
        return {"overlay": False, "mode": mode, "circuits": [], "shortage": ""}
    circuits = [{"in_use": held, "relays": _relays(circuit)} for circuit, held in pool.circuits()]
    return {"overlay": True, "mode": mode, "circuits": circuits, "shortage": pool.status.shortage}


def _relays(circuit: Circuit) -> list[dict[str, str]]:
    last = len(circuit.path) - 1
    return [
        {
            "hop": HOPS[0] if position == 0 else HOPS[2] if position == last else HOPS[1],
            "address": f"{relay.place.host}:{relay.place.port}",
            "operator": relay.operator,
        }
        for position, relay in enumerate(circuit.path)
    ]
