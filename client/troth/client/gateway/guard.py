"""Who may talk to the gateway, and how much: programs of this machine that hold the key, and no page in a browser.

A page of any site can send requests to 127.0.0.1, and with DNS rebinding even read the answers: its own name then leads
here. Such a request names that site in Host, and browsers name the page in Origin.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from troth.chain.new_files import create_file
from troth.client.errors import ConfigurationError
from troth.client.gateway.errors import GatewayRefusal, KeyRefused, PageRefused
from troth.client.gateway.refusals import answer_of

PREFIX = "sk-troth-"
LONGEST_FILE = 256
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_WITHOUT_KEY = {"/livez", "/readyz", "/metrics"}
_OWN = {"same-origin", "none"}
CONTAINER_HOSTS = ("host.docker.internal", "host.containers.internal")
"""Names by which a container reaches the machine that it runs on."""
MOST_FOLLOWED = 64
"""Orders whose verdict is awaited, with those being answered: each holds a connection to the scheduler."""


def access_key(path: Path) -> str:
    """The key in a file, which is made if there is none. ConfigurationError if others can read it, or it is no key."""
    key = PREFIX + secrets.token_urlsafe(32)
    try:
        create_file(path, f"{key}\n".encode())
    except FileExistsError:
        return _read(path)
    return key


def _read(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise ConfigurationError("Others can read the gateway's API key", path, f"Run `chmod 600 {path}`.")
    with path.open("rb") as file:
        key = file.read(LONGEST_FILE).decode("ascii", "replace").strip()
    if not key.startswith(PREFIX) or len(key) < len(PREFIX) + 32:
        raise ConfigurationError("The gateway's API key cannot be used", path, "Remove the file; a new key is made.")
    return key


@dataclass(slots=True)
class Access:
    """`hosts` are the only values of Host, none before the port is known, None for any; `key` is None for no key."""

    hosts: frozenset[str] | None
    key: str | None


def loopback_hosts(port: int, names: Collection[str] = ()) -> frozenset[str]:
    """What Host may say when a program of this machine asks; ``names``: what containers of it say."""
    return frozenset(f"{name.lower()}:{port}" for name in (*LOOPBACK, *names))


class AccessGuard:
    """ASGI middleware: turns away before anything of a request's body is read."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            return
        refusal = self._refusal(Request(scope))
        if refusal is None:
            await self._app(scope, receive, send)
            return
        answer = answer_of(refusal, scope["path"], {"connection": "close"})
        await answer(scope, receive, send)

    def _refusal(self, request: Request) -> GatewayRefusal | None:
        return self._refuse_page(request) or self._refuse_stranger(request)

    def _refuse_page(self, request: Request) -> GatewayRefusal | None:
        hosts, headers = self._access.hosts, request.headers
        if hosts is not None and [one.lower() for one in headers.getlist("host")] not in [[host] for host in hosts]:
            what = "This name does not lead to the gateway"
            return PageRefused(what, "", _way_in(headers.get("host", "")), code="host_refused")
        origins = headers.getlist("origin")
        if any(hosts is None or origin.removeprefix("http://").lower() not in hosts for origin in origins):
            return PageRefused("Pages in a browser are refused", "", "Use a program.", code="origin_refused")
        if headers.get("sec-fetch-site", "none") not in _OWN:
            return PageRefused("Pages in a browser are refused", "", "Use a program.", code="origin_refused")
        return None

    def _refuse_stranger(self, request: Request) -> GatewayRefusal | None:
        key = self._access.key
        if key is None or request.scope["path"] in _WITHOUT_KEY:
            return None
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if not given:
            # As Anthropic's clients send it.
            scheme, given = "bearer", request.headers.get("x-api-key", "")
        if scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), key.encode()):
            return None
        what = "This is not the gateway's API key" if given else "The API key is missing"
        return KeyRefused(what, "", "`troth client serve` prints the key as OPENAI_API_KEY.")


def _way_in(host: str) -> str:
    """What to do about a name that was refused."""
    name = host.lower().rpartition(":")[0]
    if name not in CONTAINER_HOSTS:
        return "Use 127.0.0.1 or localhost, with the port."
    return (
        f"Start the gateway with `troth client serve --allow-host {name}` to let this machine's containers in. Where "
        "they do not reach its loopback address (Docker on Linux), add --host with the bridge's and --allow-remote."
    )


@dataclass(frozen=True, slots=True)
class SpendingLimits:
    """What the wallet's owner allows: wei for one request, wei for all orders of a day (UTC). None: no limit."""

    request: int | None = None
    day: int | None = None
