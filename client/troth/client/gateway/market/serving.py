"""A gateway from its parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from troth.chain.errors import ChainError
from troth.client.errors import ClientError
from troth.client.gateway.access_key import access_key
from troth.client.gateway.application import Front, no_such_model
from troth.client.gateway.completion import Completion
from troth.client.gateway.connection import Connection
from troth.client.gateway.errors import GatewayRefusal
from troth.client.gateway.guard import Access
from troth.client.gateway.ledger import Ledger
from troth.client.gateway.limits import Limits
from troth.client.gateway.market.catalogue import model_json, names
from troth.client.gateway.market.completion import TabCompletion, TabShapes
from troth.client.gateway.market.failures import refusal_of
from troth.client.gateway.market.intake import MarketIntake
from troth.client.gateway.market.questions import Questions
from troth.client.gateway.market.receipts import receipt_json
from troth.client.gateway.metrics import Metrics
from troth.client.gateway.paths_view import paths_json
from troth.client.gateway.request import Wanted
from troth.client.gateway.serving import Running as Gateway
from troth.client.gateway.serving import Settings, run, server_of
from troth.client.gateway.shapes import Shapes
from troth.client.home import Home
from troth.client.orders.running import Running
from troth.client.orders.terminal import price_limit
from troth.client.orders.wishes import Check, PriceLimit

Factory = Callable[[], AbstractAsyncContextManager[Running]]


@dataclass(kw_only=True)
class MarketGateway(Front):
    """The gateway."""

    connection: Connection[Running]
    intake: MarketIntake

    def away(self) -> list[str]:
        return self.connection.reasons()

    async def start(self, wanted: Wanted) -> Completion:
        return await self.intake.start(wanted)

    def shapes(self, completion: Completion) -> Shapes:
        assert isinstance(completion, TabCompletion)
        return TabShapes(completion, self.base)

    async def models(self) -> list[dict[str, Any]]:
        async with self.connection.lease() as held:
            return [model_json(held.session, await held.session.session.ready(), self.created)]

    async def model(self, name: str) -> dict[str, Any]:
        async with self.connection.lease() as held:
            offer = await held.session.session.ready()
            if name not in names(offer):
                raise no_such_model(name)
            return model_json(held.session, offer, self.created)

    def refusal(self, error: ClientError | ChainError) -> GatewayRefusal:
        return refusal_of(error)

    async def paths(self) -> dict[str, Any]:
        async with self.connection.lease() as held:
            return paths_json(held.session.session.pool, held.session.session.mode)

    async def receipt(self, identifier: str) -> dict[str, Any]:
        async with self.connection.lease() as held:
            return receipt_json(self.ledger, held.session, identifier)


@asynccontextmanager
async def assembled(
    home: Home,
    factory: Factory,
    settings: Settings,
    check: Check = Check(),
    price: PriceLimit = PriceLimit(),
) -> AsyncIterator[Gateway]:
    """A gateway with its connection, not yet listening: see `TlsServer`, whose application it is."""
    settings.checked()
    home.create()
    secret = access_key(home.gateway_key) if settings.with_key else None
    ledger, metrics = Ledger(home.gateway_ledger), Metrics()
    try:
        async with Connection(factory) as connection:
            questions = Questions(ledger, metrics, settings.concurrent)
            intake = MarketIntake(connection, questions, ledger, settings.limits, check, price)
            gateway = MarketGateway(
                connection=connection,
                intake=intake,
                ledger=ledger,
                metrics=metrics,
                defaults=settings.defaults,
                keep_alive=settings.keep_alive,
                body_seconds=settings.body_seconds,
            )
            try:
                access = Access(None if settings.allow_remote else frozenset(), secret)
                yield Gateway(gateway, server_of(gateway, settings, access), access, settings.host)
            finally:
                await questions.close()
    finally:
        ledger.close()


@dataclass(frozen=True, slots=True)
class Amounts:
    """Limits as they were typed: their asset is known once the chain was read."""

    max_cost: str = ""
    budget: str = ""
    max_price: str = ""


async def serve(  # noqa: PLR0917
    home: Home, factory: Factory, settings: Settings, check: Check, amounts: Amounts, ready: Callable[[Gateway], None]
) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is called once it listens."""
    limits, price = Limits(), PriceLimit()
    if amounts != Amounts():
        async with factory() as running:
            asset = running.asset
        limits = Limits(
            asset.parse(amounts.max_cost) if amounts.max_cost else None,
            asset.parse(amounts.budget) if amounts.budget else None,
        )
        price = price_limit(amounts.max_price, asset)
    async with assembled(home, factory, replace(settings, limits=limits), check, price) as gateway:
        await run(gateway, ready)
