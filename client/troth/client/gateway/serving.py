"""A gateway from its parts, and the process around it."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field

from troth.client.errors import ConfigurationError
from troth.client.gateway.application import KEEP_ALIVE_SECONDS, Front, gateway_app
from troth.client.gateway.body import BODY_SECONDS
from troth.client.gateway.guard import Access, Guard, loopback_hosts
from troth.client.gateway.limits import Limits
from troth.client.gateway.request import Defaults
from troth.overlay.server import TlsServer, run_until_stopped

DRAIN_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How a gateway is to run; wei."""

    host: str = "127.0.0.1"
    port: int = 11711
    allow_remote: bool = False
    with_key: bool = True
    concurrent: int = 16
    limits: Limits = field(default_factory=Limits)
    defaults: Defaults = field(default_factory=Defaults)
    keep_alive: float = KEEP_ALIVE_SECONDS
    body_seconds: float = BODY_SECONDS

    def checked(self) -> Settings:
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
        return self


@dataclass(frozen=True, slots=True)
class Running:
    """A gateway and its server; call `listens` once the server does."""

    gateway: Front
    server: TlsServer
    access: Access
    host: str

    def listens(self, port: int) -> None:
        """From now on its address is known, so requests that name it are let in."""
        self.gateway.base = f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{port}"
        if self.access.hosts is not None:
            self.access.hosts = loopback_hosts(port)

    @property
    def base_url(self) -> str:
        """What OpenAI clients call the base URL."""
        return f"{self.gateway.base}/v1"


async def run(running: Running, ready: Callable[[Running], None]) -> None:
    """Serve an assembled gateway until SIGINT or SIGTERM."""

    def listening(port: int) -> None:
        running.listens(port)
        ready(running)

    await run_until_stopped(running.server, listening)


def server_of(gateway: Front, settings: Settings, access: Access) -> TlsServer:
    """The server around a gateway, not started."""
    app = gateway_app(gateway)
    app.add_middleware(Guard, access=access)
    return TlsServer(app, None, settings.host, settings.port, drain=gateway.drain, drain_seconds=DRAIN_SECONDS)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # A name may lead anywhere, tomorrow if not today.
        return host == "localhost"
