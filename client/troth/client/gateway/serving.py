"""A gateway from its parts, the process around it, and the circuits that its requests go over."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace

from troth.client.errors import ConfigurationError
from troth.client.gateway.application import gateway_app
from troth.client.gateway.body import BODY_SECONDS
from troth.client.gateway.connection import Connection
from troth.client.gateway.gateway import Gateway
from troth.client.gateway.guard import Access, AccessGuard, SpendingLimits, access_key, loopback_hosts
from troth.client.gateway.intake import Intake
from troth.client.gateway.ledger import CompletionLedger
from troth.client.gateway.metrics import GatewayMetrics
from troth.client.gateway.questions import Questions
from troth.client.gateway.request import Defaults
from troth.client.home import Home
from troth.client.orders.running import Running
from troth.client.orders.terminal import price_limit
from troth.client.orders.wishes import CheckWish, PriceLimit
from troth.transport.server import TlsServer, run_until_stopped

DRAIN_SECONDS = 300.0
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
KEEP_ALIVE_SECONDS = 5.0
Factory = Callable[[], AbstractAsyncContextManager[Running]]


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """How a gateway is to run; wei. ``names``: what else than loopback's names Host may say."""

    host: str = "127.0.0.1"
    port: int = 11711
    allow_remote: bool = False
    names: tuple[str, ...] = ()
    with_key: bool = True
    concurrent: int = 16
    limits: SpendingLimits = field(default_factory=SpendingLimits)
    defaults: Defaults = field(default_factory=Defaults)
    keep_alive: float = KEEP_ALIVE_SECONDS
    body_seconds: float = BODY_SECONDS

    def checked(self) -> GatewaySettings:
        """These settings, or ConfigurationError where they would hand the wallet to strangers."""
        if not self.allow_remote and not _is_loopback(self.host):
            raise ConfigurationError(
                "The gateway pays from your wallet, so it listens on loopback addresses only",
                self.host,
                "Use --host 127.0.0.1, or --allow-remote if every machine that reaches this one may pay from it.",
            )
        if self.allow_remote and not self.with_key:
            what = "Without a key, anybody who reaches this machine could pay from the wallet"
            raise ConfigurationError(what, "--allow-remote --no-key", "Leave one of them out.")
        if self.names and not self.with_key:
            # A page can have its own name lead here; without a key that alone would be enough.
            what = "Without a key, a page whose name is let in could pay from the wallet"
            raise ConfigurationError(what, "--allow-host --no-key", "Leave one of them out.")
        for name in self.names:
            if not _NAME.fullmatch(name):
                raise ConfigurationError("This is no host name", name[:80], "Such as host.docker.internal.")
        return self


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway and its server; call `listens` once the server does."""

    gateway: Gateway
    server: TlsServer
    access: Access
    host: str
    names: tuple[str, ...] = ()

    def listens(self, port: int) -> None:
        """From now on its address is known, so requests that name it are let in."""
        self.gateway.base = f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{port}"
        if self.access.hosts is not None:
            self.access.hosts = loopback_hosts(port, self.names)

    @property
    def base_url(self) -> str:
        """What OpenAI clients call the base URL."""
        return f"{self.gateway.base}/v1"


async def run(running: RunningGateway, ready: Callable[[RunningGateway], None]) -> None:
    """Serve an assembled gateway until SIGINT or SIGTERM."""

    def listening(port: int) -> None:
        running.listens(port)
        ready(running)

    await run_until_stopped(running.server, listening)


def server_of(gateway: Gateway, settings: GatewaySettings, access: Access) -> TlsServer:
    """The server around a gateway, not started."""
    app = gateway_app(gateway)
    app.add_middleware(AccessGuard, access=access)
    return TlsServer(app, None, settings.host, settings.port, drain=gateway.drain, drain_seconds=DRAIN_SECONDS)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # A name may lead anywhere, tomorrow if not today.
        return host == "localhost"


@asynccontextmanager
async def assembled(
    home: Home,
    factory: Factory,
    settings: GatewaySettings,
    check: CheckWish = CheckWish(),
    price: PriceLimit = PriceLimit(),
) -> AsyncIterator[RunningGateway]:
    """A gateway with its connection, not yet listening: see `TlsServer`, whose application it is."""
    settings.checked()
    home.create()
    secret = access_key(home.gateway_key) if settings.with_key else None
    ledger, metrics = CompletionLedger(home.gateway_ledger), GatewayMetrics()
    try:
        async with Connection(factory) as connection:
            questions = Questions(ledger, metrics, settings.concurrent)
            intake = Intake(connection, questions, ledger, settings.limits, check, price)
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
                yield RunningGateway(
                    gateway, server_of(gateway, settings, access), access, settings.host, settings.names
                )
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
    home: Home,
    factory: Factory,
    settings: GatewaySettings,
    check: CheckWish,
    amounts: Amounts,
    ready: Callable[[RunningGateway], None],
) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is called once it listens."""
    limits, price = SpendingLimits(), PriceLimit()
    if amounts != Amounts():
        async with factory() as running:
            asset = running.asset
        limits = SpendingLimits(
            asset.parse(amounts.max_cost) if amounts.max_cost else None,
            asset.parse(amounts.budget) if amounts.budget else None,
        )
        price = price_limit(amounts.max_price, asset)
    async with assembled(home, factory, replace(settings, limits=limits), check, price) as gateway:
        await run(gateway, ready)
