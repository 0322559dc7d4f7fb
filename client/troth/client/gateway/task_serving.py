"""A gateway of the per-task way from its parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from troth.chain.keystore import Key
from troth.client.gateway.access_key import access_key
from troth.client.gateway.connection import Connection
from troth.client.gateway.guard import Access
from troth.client.gateway.intake import Intake
from troth.client.gateway.ledger import Ledger
from troth.client.gateway.metrics import Metrics
from troth.client.gateway.orders import Orders
from troth.client.gateway.serving import Running, Settings, run, server_of
from troth.client.gateway.task_gateway import Gateway
from troth.client.home import Home
from troth.client.session import Session


@asynccontextmanager
async def assembled(home: Home, key: Key, factory: SessionFactory, settings: Settings) -> AsyncIterator[Running]:
    """A gateway with its connection, not yet listening: see `TlsServer`, whose application it is."""
    settings.checked()
    home.create()
    secret = access_key(home.gateway_key) if settings.with_key else None
    ledger, metrics = Ledger(home.gateway_ledger), Metrics()
    try:
        async with Connection(factory) as connection:
            orders = Orders(connection, ledger, metrics, settings.concurrent)
            intake = Intake(connection, orders, ledger, key, settings.limits)
            gateway = Gateway(
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
                yield Running(gateway, server_of(gateway, settings, access), access, settings.host)
            finally:
                await orders.close()
    finally:
        ledger.close()


async def serve(
    home: Home, key: Key, factory: SessionFactory, settings: Settings, ready: Callable[[Running], None]
) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is called once it listens."""

    async with assembled(home, key, factory, settings) as running:
        await run(running, ready)


SessionFactory = Callable[[], AbstractAsyncContextManager[Session]]
