"""The gateway of the per-task way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from troth.chain.errors import ChainError
from troth.client.errors import ClientError
from troth.client.gateway.application import Front, no_such_model
from troth.client.gateway.catalogue import model_json, names
from troth.client.gateway.completion import Completion
from troth.client.gateway.connection import Connection
from troth.client.gateway.errors import GatewayRefusal, NotReady
from troth.client.gateway.failures import refusal_before
from troth.client.gateway.intake import Intake
from troth.client.gateway.paths_view import paths_json
from troth.client.gateway.receipt_view import receipt_json
from troth.client.gateway.request import Wanted
from troth.client.session import Session


@dataclass(kw_only=True)
class Gateway(Front):
    """The gateway of the per-task way."""

    connection: Connection[Session]
    intake: Intake

    def away(self) -> list[str]:
        return self.connection.reasons()

    async def start(self, wanted: Wanted) -> Completion:
        return await self.intake.start(wanted)

    async def models(self) -> list[dict[str, Any]]:
        async with self.connection.lease() as held:
            return [model_json(held.session, self.created)]

    async def model(self, name: str) -> dict[str, Any]:
        async with self.connection.lease() as held:
            if name not in names(held.session.offer):
                raise no_such_model(name)
            return model_json(held.session, self.created)

    def refusal(self, error: ClientError | ChainError) -> GatewayRefusal:
        if isinstance(error, ClientError):
            return refusal_before(error, "")
        return NotReady(error.what, error.value, error.remedy, "chain")

    async def paths(self) -> dict[str, Any]:
        async with self.connection.lease() as held:
            return paths_json(held.session.pool, held.session.mode)

    async def receipt(self, identifier: str) -> dict[str, Any]:
        async with self.connection.lease() as held:
            return await receipt_json(self.ledger, held.session, identifier)
