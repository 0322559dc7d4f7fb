"""An HTTP proxy before a chain's node that turns bad while others use it, as its ``mode`` says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from aiohttp import web

from troth.testnet.ports import free_port

NORMAL, SLOW, PAGE, GATEWAY, OTHER, HALF = "normal", "slow", "page", "gateway", "other", "half"
"""As it is; after SECONDS; HTML with status 200; HTML with 502; another chain answers; half of an answer, then
silence."""
SECONDS = 10.0
HTML = "<!doctype html><title>Sorry</title><p>Something went wrong."


class BadRpc:
    """``chain`` is the node behind it, ``other`` one of another chain."""

    def __init__(self, chain: str, other: str) -> None:
        self.mode, self.url = NORMAL, ""
        self._chain, self._other = chain, other
        self._client = httpx.AsyncClient(timeout=60.0, trust_env=False)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        mode, body = self.mode, await request.read()
        if mode in {PAGE, GATEWAY}:
            return web.Response(text=HTML, content_type="text/html", status=200 if mode == PAGE else 502)
        if mode == SLOW:
            await asyncio.sleep(SECONDS)
        headers = {"content-type": "application/json"}
        found = await self._client.post(self._other if mode == OTHER else self._chain, content=body, headers=headers)
        if mode != HALF:
            return web.Response(body=found.content, content_type="application/json")
        halved = web.StreamResponse(headers={"content-length": str(len(found.content))})
        await halved.prepare(request)
        await halved.write(found.content[: len(found.content) // 2])
        await asyncio.sleep(3600)
        return halved


@asynccontextmanager
async def before(chain: str, other: str) -> AsyncIterator[BadRpc]:
    """The proxy at a URL of its own."""
    made, application, port = BadRpc(chain, other), web.Application(client_max_size=1 << 28), free_port()
    application.router.add_post("/", made.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        made.url = f"http://127.0.0.1:{port}"
        yield made
    finally:
        await runner.cleanup()
        await made._client.aclose()
