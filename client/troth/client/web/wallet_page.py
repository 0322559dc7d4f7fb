"""The page for a wallet: a plan goes to the browser, the wallet sends it, and the chain says that it is done.

It listens on 127.0.0.1 alone, below a path that nobody can guess, answers only to that name (so that no other page
reaches it by a name that changes its address) and takes no key: the wallet signs, the tab's key stays with the command.
What the browser says is not believed: the step is over when this command's own chain node says so.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

from troth.chain.errors import ChainError
from troth.client.errors import TransactionRefused, WalletError
from troth.protocol.errors import InvalidField, TrothError
from troth.protocol.types import to_address
from troth.transport.server import TlsServer, serving

_log = logging.getLogger(__name__)

HOST = "127.0.0.1"
PATIENCE_SECONDS = 900.0
"""How long a person may take with the wallet."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
PARTS = {"": ("wallet.html", "text/html"), "wallet.js": ("wallet.js", "text/javascript")}
PARTS = PARTS | {"wallet.css": ("wallet.css", "text/css")}

Plan = Callable[[str], Awaitable[dict[str, Any]]]
"""What the account that is named must send; what ``opening.carry_out`` says of a dry run, with ``chain_id``."""
Done = Callable[[dict[str, Any]], Awaitable[bool]]
"""Whether the chain has taken a plan."""


@dataclass(slots=True)
class WalletPage:
    """One wish and its page. ``title`` says what is wished; ``payer`` is whose wallet it must be, if that is known."""

    title: str
    plan: Plan
    done: Done
    payer: str = ""
    _token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    _planned: dict[str, Any] | None = None
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _port: int = 0

    async def run(self, tell: Callable[[str], None]) -> dict[str, Any]:
        """Serve until the chain has taken the plan; ``tell`` gets the address. TransactionRefused if nobody signs."""
        server = TlsServer(self.application(), None, HOST, 0)
        async with serving(server):
            self._port = server.port
            tell(f"http://{HOST}:{server.port}/{self._token}/")
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._over.wait()
            except TimeoutError as error:
                what = "Nobody signed in the browser's wallet"
                raise TransactionRefused(what, f"{PATIENCE_SECONDS:.0f} s", "Run the command again.") from error
            # The page hears that it is over before nobody answers it any more.
            await asyncio.sleep(1.0)
        assert self._planned is not None
        return self._planned | {"broadcast": True}

    def application(self) -> FastAPI:
        """The page, the plan and its state, below the secret path."""
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

        @app.middleware("http")
        async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
            made = await answer(request) if self._may(request) else Response("Not here.", 403, media_type="text/plain")
            made.headers["Content-Security-Policy"] = POLICY
            made.headers["Referrer-Policy"] = "no-referrer"
            made.headers["X-Content-Type-Options"] = "nosniff"
            made.headers["Cache-Control"] = "no-store"
            return made

        @app.post(f"/{self._token}/plan")
        async def plan(request: Request) -> JSONResponse:
            return await self._answer(self._plan_for(request))

        @app.post(f"/{self._token}/state")
        async def state() -> JSONResponse:
            return await self._answer(self._state())

        @app.get(f"/{self._token}/wish")
        async def wish() -> JSONResponse:
            return JSONResponse({"title": self.title, "payer": self.payer})

        @app.get(f"/{self._token}/{{part}}")
        async def part(part: str) -> Response:
            return _static(part)

        @app.get(f"/{self._token}/")
        async def page() -> Response:
            return _static("")

        return app

    def _may(self, request: Request) -> bool:
        """From this page alone: its own name and port, and no other page's origin."""
        own = f"{HOST}:{self._port}"
        origin = request.headers.get("origin")
        return request.headers.get("host") == own and origin in {None, f"http://{own}"}

    async def _answer(self, work: Awaitable[dict[str, Any]]) -> JSONResponse:
        try:
            return JSONResponse(await work)
        except TrothError as error:
            return JSONResponse({"error": error.what, "value": str(error.value), "remedy": error.remedy}, 409)

    async def _plan_for(self, request: Request) -> dict[str, Any]:
        body = await request.body()
        try:
            account = to_address(body.decode("ascii"))
        except (UnicodeDecodeError, InvalidField) as error:
            raise WalletError("The wallet gave no address", body[:60].hex(), "Unlock it, and try again.") from error
        if self.payer and account != self.payer:
            raise WalletError("This is not the account that owns the tab", account, f"Choose {self.payer}.")
        self._planned = await self.plan(account)
        return self._planned

    async def _state(self) -> dict[str, Any]:
        if self._planned is None:
            return {"done": False}
        try:
            over = await self.done(self._planned)
        except ChainError as error:
            _log.warning("the chain cannot be asked: %s", error)
            return {"done": False}
        if over:
            self._over.set()
        return {"done": over}


def _static(part: str) -> Response:
    found = PARTS.get(part)
    if found is None:
        return Response("There is no such page.", 404, media_type="text/plain")
    return Response((files("troth.client.web") / "static" / found[0]).read_bytes(), media_type=found[1])
