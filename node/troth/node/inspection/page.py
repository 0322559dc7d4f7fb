"""`troth node page`: what an operator looks at in the morning, on loopback, without scripts or ways to change anything.

A page in the operator's browser could be reached by any site that the browser visits: by a name that resolves to
127.0.0.1 (DNS rebinding), or in a frame. So only a Host header that names loopback is answered, frames are forbidden,
and the policy allows nothing but the page's own style.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from troth.chain.errors import ChainError, KeystoreError
from troth.node.configuration import load
from troth.node.earning.money import earnings
from troth.node.errors import NodeError
from troth.node.inspection.status import examine, status
from troth.protocol.amounts import AssetPrice, readable
from troth.protocol.errors import TrothError
from troth.transport.errors import OverlayError
from troth.transport.health import HealthFinding

KEPT_SECONDS = 15.0
"""How long one look at chain and process is shown."""
LOG_BYTES, LOG_LINES = 64 * 1024, 40
_FAILURES = (ChainError, KeystoreError, NodeError, OverlayError, TrothError)
_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


def commands(text: str) -> Markup:
    """Text as HTML, in which what stands between backticks is a command."""
    made = Markup()
    while (found := re.search("`([^`]+)`", text)) is not None:
        made += escape(text[: found.start()]) + Markup("<code>{}</code>").format(found[1])
        text = text[found.end() :]
    return made + escape(text)


_TEMPLATES.filters["commands"] = commands


def counted(count: int, what: str) -> str:
    """A number of things, such as "1 answer" and "2 answers"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


@dataclass(frozen=True, slots=True)
class Glance:
    """One look: findings, and what the chain and the records say; ``trouble`` where they could not be asked."""

    findings: Sequence[HealthFinding]
    standing: dict[str, Any]
    money: dict[str, Any]
    why: Sequence[str]
    trouble: str = ""
    at: float = field(default_factory=time.time)

    @property
    def next_thing(self) -> str:
        """The one thing to do now."""
        if self.trouble:
            return self.trouble
        failing = next((one for one in self.findings if not one.ok), None)
        if failing is not None:
            return f"{failing.check}: {failing.seen}. {failing.fix}"
        return "Nothing. Work comes by itself."


def look(home: Path, price: AssetPrice | None = None) -> Glance:
    """Everything that the page shows, as the commands show it; takes seconds."""
    try:
        findings = examine(home, machine=False)
        money = earnings(home)
        standing = status(home)
    except _FAILURES as error:
        return Glance([], {}, {}, [], f"{error.what}: {error.value}. {error.remedy}")
    why = money.pop("why")
    return Glance(findings, readable(standing, price), readable(money, price), why)


def tail(path: Path | None) -> list[str]:
    """The last lines of a log; none where there is no file."""
    if path is None:
        return []
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - LOG_BYTES, 0))
            lines = file.read(LOG_BYTES).decode("utf-8", "replace").splitlines()
    except OSError as error:
        return [f"{path}: {error.strerror}"]
    return lines[-LOG_LINES:]


class OperatorPage:
    """Answers from one look for a while, however often it is asked."""

    def __init__(self, looking: Callable[[], Glance], log: Path | None, endpoint: str, slices: str) -> None:
        self._looking = looking
        self._log = log
        self._about = {"endpoint": endpoint, "slices": slices}
        self._glance: Glance | None = None
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def glance(self) -> Glance:
        """The present one, or a new one; one at a time."""
        async with self._lock:
            if self._glance is None or time.monotonic() >= self._until:
                self._glance = await asyncio.to_thread(self._looking)
                self._until = time.monotonic() + KEPT_SECONDS
            return self._glance

    async def html(self, nonce: str, *, again: bool = False) -> str:
        """The page; ``again``: it loads itself again, which nobody wants who reads it slowly."""
        found = await self.glance()
        template = _TEMPLATES.get_template("page.html")
        age = f"{max(time.time() - found.at, 0):.0f}"
        shown = {
            "glance": found,
            "counted": counted,
            "log": tail(self._log),
            "nonce": nonce,
            "age": age,
            "again": again,
        }
        return template.render(**shown, **self._about)


def application(page: OperatorPage, port: int) -> FastAPI:
    """The page at /, for Host headers that name loopback and this port."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}

    @app.get("/")
    async def shown(request: Request) -> Response:
        if request.headers.get("host", "").lower() not in hosts:
            return PlainTextResponse("This page is for this machine's own loopback address.\n", status_code=421)
        nonce = secrets.token_urlsafe(16)
        policy = f"default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'"
        headers = {
            "content-security-policy": policy + "; frame-ancestors 'none'",
            "x-frame-options": "DENY",
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-store",
        }
        return HTMLResponse(await page.html(nonce, again="again" in request.query_params), headers=headers)

    return app


async def serve(home: Path, port: int, log: Path | None, ready: Callable[[str], None]) -> None:
    """Serve on 127.0.0.1 until SIGINT or SIGTERM; raises ConfigError where the node is not set up."""
    from troth.transport.command_options import asset_price
    from troth.transport.server import TlsServer, run_until_stopped

    configuration, price = load(home), asset_price()
    slices = ", ".join(f"{one.first}:{one.end}" for one in configuration.segments)
    page = OperatorPage(lambda: look(home, price), log, configuration.endpoint, slices)
    server = TlsServer(application(page, port), None, "127.0.0.1", port)
    await run_until_stopped(server, lambda taken: ready(f"http://127.0.0.1:{taken}/"))
