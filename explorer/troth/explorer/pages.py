"""The web application: pages, files, static parts. It reads the index and nothing else.

The index is asked, and a page is made of what it says, in threads that have a connection each. The loop goes on
meanwhile, so that a query that lasts holds up no other page.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse

from troth.explorer.database import DatabaseFailed
from troth.explorer.errors import ExplorerError, IndexUnusable, NoSuchFigure, NothingHere, TooManyAsk
from troth.explorer.site import Site

_log = logging.getLogger(__name__)

Made = TypeVar("Made")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'{more}; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
OWN_NODE = " http://127.0.0.1:* http://localhost:*"
"""Where the receipt's page may ask besides: a chain node on the reader's own machine."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
MEDIA = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
WAITING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="3"><title>Reading · Troth explorer</title>
<link rel="stylesheet" href="{root}static/explorer.css"></head>
<body><main><h1>Reading the chain</h1><p class="lead">The first reading takes as long as the deployment has events.
This page looks again by itself.</p></main></body></html>
"""
"""What is shown until there is an index; ``root`` leads up to the first page, which may lie below any path."""
QUERY_LIMIT = 1_000
"""Bytes of a query string."""
READERS = 4
"""Threads that read the index, each over a connection of its own."""
ASKED_LIMIT = 64
"""Requests that are read for, or wait for a reader, at once; more are refused, so that nobody waits for minutes."""
PART_BYTES = 64 * 1024
"""Bytes of a file that are sent, and compressed, in one step of the loop: about two milliseconds."""


def policy(path: str) -> str:
    """The Content-Security-Policy of a page."""
    return POLICY.format(more=OWN_NODE if path == "receipt" else "")


def static_parts() -> dict[str, bytes]:
    """Every static file by its path below static/: read once, so that no path from outside reaches a disk."""
    found: dict[str, bytes] = {}

    def collect(folder: Any, prefix: str) -> None:
        for one in folder.iterdir():
            if one.is_dir():
                collect(one, f"{prefix}{one.name}/")
            elif any(one.name.endswith(ending) for ending in MEDIA):
                found[prefix + one.name] = one.read_bytes()

    collect(files("troth.explorer") / "static", "")
    return found


def media_of(path: str) -> str:
    """The media type of a static part."""
    return next(media for ending, media in MEDIA.items() if path.endswith(ending))


def application(open_site: Callable[[], Site]) -> FastAPI:
    """The application; ``open_site`` opens the index, again if it could not be opened yet."""
    served = _Served(open_site)

    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await served.close()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=life)
    app.add_middleware(GZipMiddleware, minimum_size=1_000, compresslevel=5)
    parts = static_parts()

    @app.middleware("http")
    async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        if len(request.scope.get("query_string", b"")) > QUERY_LIMIT:
            return Response("The query is too long.", 414, media_type="text/plain")
        made = await answer(request)
        made.headers["Content-Security-Policy"] = policy(request.scope["path"].strip("/"))
        made.headers.update(HEADERS)
        made.headers.setdefault("Cache-Control", "no-cache")
        return made

    @app.get("/livez")
    async def livez() -> JSONResponse:
        return JSONResponse({"live": True})

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        found = await served.reasons()
        return JSONResponse({"ready": not found, "reasons": found}, status_code=503 if found else 200)

    @app.get("/freshness.json")
    async def freshness() -> Response:
        return await served.answer(lambda site: JSONResponse(site.freshness()), "freshness.json")

    @app.get("/static/{path:path}")
    async def static(path: str) -> Response:
        content = parts.get(path)
        if content is None:
            return Response("There is no such file.", 404, media_type="text/plain")
        return Response(content, media_type=media_of(path), headers={"Cache-Control": "max-age=300"})

    @app.get("/figures/{name}.{kind}")
    async def figure(name: str, kind: str, request: Request) -> Response:
        return await served.answer(lambda site: _file(site, name, kind, dict(request.query_params)), "figures")

    @app.get("/find")
    async def find(request: Request) -> Response:
        typed = request.query_params.get("q", "")
        # Relative, like all links: the pages may lie below any path.
        return await served.answer(lambda site: RedirectResponse(site.found(typed), 303), "find")

    @app.get("/{path:path}")
    async def page(path: str, request: Request) -> Response:
        query = dict(request.query_params)
        return await served.answer(lambda site: HTMLResponse(site.page(path.rstrip("/"), query)), path)

    return app


def _file(site: Site, name: str, kind: str, query: Mapping[str, str]) -> Response:
    if kind not in {"csv", "json"}:
        raise NothingHere("Figures are CSV or JSON", kind[:20], "Ask for one of them.")
    options = dict(query)
    found = site.figure(name, options, options.pop("after", ""))
    if kind == "json":
        return _in_parts(found.as_json(), "application/json", {})
    more = {"Content-Disposition": f'attachment; filename="{found.name}.csv"'}
    if found.cursor:
        more["X-Next"] = found.cursor
    return _in_parts(found.as_csv(), "text/csv; charset=utf-8", more)


def _in_parts(text: str, media: str, headers: Mapping[str, str]) -> Response:
    """A large answer, of which the loop compresses a part at a time."""
    body = text.encode()

    async def parts() -> AsyncIterator[bytes]:
        for begin in range(0, len(body), PART_BYTES):
            yield body[begin : begin + PART_BYTES]

    return StreamingResponse(parts(), media_type=media, headers={**headers, "Content-Length": str(len(body))})


class _Served:
    """The site, opened once by each thread that reads it, and what is answered where something is wrong."""

    def __init__(self, open_site: Callable[[], Site]) -> None:
        self._open = open_site
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="explorer's reader")
        self._of_thread = threading.local()
        self._opened: list[Site] = []
        self._asked = 0

    async def answer(self, work: Callable[[Site], Response], path: str) -> Response:
        """What ``work`` makes of a site, in a thread."""
        try:
            return await self._in_thread(lambda: self._answer(work, path))
        except TooManyAsk as error:
            return Response(f"{error}\n", 503, media_type="text/plain", headers={"Retry-After": "3"})

    async def reasons(self) -> list[str]:
        """Why the pages are not to be relied on now; empty if they are. A finding is none: pages show it."""
        try:
            at = await self._in_thread(lambda: self._site().freshness())
        # What these two say is not shown: it may name the database's host and user.
        except DatabaseFailed as error:
            _log.warning("the index cannot be read: %s", error)
            return ["the index cannot be read now"]
        except IndexUnusable as error:
            _log.info("%s", error)
            return [f"the index cannot be opened: {error.remedy}"]
        except ExplorerError as error:
            return [f"{error.what}: {error.remedy}"]
        unaudited = [] if at["audited"] >= 0 else ["no audit has ended yet"]
        return unaudited + ([at["trouble"]] if at["trouble"] else [])

    async def close(self) -> None:
        """End the threads, and then their connections."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        for site in self._opened:
            site.close()

    # ---- in a thread

    async def _in_thread(self, work: Callable[[], Made]) -> Made:
        if self._asked >= ASKED_LIMIT:
            raise TooManyAsk("Too many ask at once", self._asked, "Ask again in a few seconds.")
        self._asked += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._asked -= 1

    def _site(self) -> Site:
        """This thread's; opened again if it could not be opened yet."""
        if (found := self._already()) is not None:
            return found
        made = self._of_thread.site = self._open()
        self._opened.append(made)
        return made

    def _already(self) -> Site | None:
        return getattr(self._of_thread, "site", None)

    def _answer(self, work: Callable[[Site], Response], path: str) -> Response:
        try:
            return work(self._site())
        except IndexUnusable as error:
            # The first reading lasts, and the page says so: no line of the log for every visitor.
            _log.info("%s", error)
            return HTMLResponse(WAITING.format(root="../" * path.count("/")), 503, headers={"Retry-After": "3"})
        except (NothingHere, NoSuchFigure) as error:
            return self._told(error, 404, path)
        except DatabaseFailed as error:
            _log.warning("the index cannot be read: %s", error)
            return Response("The index cannot be read now.\n", 503, media_type="text/plain")
        except ExplorerError as error:
            return self._told(error, 503, path)

    def _told(self, error: ExplorerError, status: int, path: str) -> Response:
        site = self._already()
        if site is None:
            return Response(f"{error}\n", status, media_type="text/plain")
        shown = path if path.count("/") < 2 else "error"
        body = site.render("error.html", shown, what=error.what, remedy=error.remedy)
        return HTMLResponse(body, status)
