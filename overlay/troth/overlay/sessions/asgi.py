"""An ASGI application behind a session: the same one that is served over HTTPS, without a socket in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

from troth.overlay.sessions.messages import Request, ResponseHead
from troth.overlay.sessions.serving import Responder, Serve

_Message = MutableMapping[str, Any]
Application = Callable[
    [_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]
]
_SCHEME = "troth"


def serve_application(application: Application) -> Serve:
    """A `Serve` that hands each request to the application (ASGI 3.0, HTTP)."""

    async def serve(request: Request, responder: Responder) -> None:
        gone = asyncio.Event()
        asked = False

        async def receive() -> _Message:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": request.body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: _Message) -> None:
            if message["type"] == "http.response.start":
                headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"])
                await responder.head(ResponseHead(int(message["status"]), headers))
            elif message["type"] == "http.response.body" and message.get("body"):
                await responder.body(bytes(message["body"]))

        try:
            await application(_scope(request), receive, send)
        finally:
            gone.set()

    return serve


def _scope(request: Request) -> _Message:
    path, _, query = request.target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": _SCHEME,
        "path": unquote(path),
        "raw_path": path.encode("ascii", "ignore"),
        "query_string": query.encode("ascii", "ignore"),
        "root_path": "",
        "headers": [
            (name.lower().encode("latin-1", "ignore"), value.encode("latin-1", "ignore"))
            for name, value in request.headers
        ],
        # No client: the overlay does not know one, and nothing behind it may believe that it does.
        "client": None,
        "server": None,
        "extensions": {},
    }
