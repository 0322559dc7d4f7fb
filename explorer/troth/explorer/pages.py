"""The web application: pages, files, static parts. It reads the index and nothing else."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from troth.explorer.database import DatabaseFailed
from troth.explorer.errors import ExplorerError, IndexUnusable, NoSuchFigure, NothingHere
from troth.explorer.site import Site

_log = logging.getLogger(__name__)

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
        served.close()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=life)
    app.add_middleware(GZipMiddleware, minimum_size=1_000, compresslevel=5)
    parts = static_parts()

    @app.middleware("http")
    async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        if len(request.scope.get("query_string", b"")) > QUERY_LIMIT:
            return Response("The query is too long.", 414, media_type="text/plain")
        made = await answer(request)
        made.headers["Content-Security-Policy"] = policy(request.url.path.strip("/"))
        made.headers.update(HEADERS)
        made.headers.setdefault("Cache-Control", "no-cache")
        return made

    @app.get("/livez")
    async def livez() -> JSONResponse:
        return JSONResponse({"live": True})

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        found = served.reasons()
        return JSONResponse({"ready": not found, "reasons": found}, status_code=503 if found else 200)

    @app.get("/freshness.json")
    async def freshness() -> Response:
        return served.answer(lambda site: JSONResponse(site.freshness()), "freshness.json")

    @app.get("/static/{path:path}")
    async def static(path: str) -> Response:
        content = parts.get(path)
        if content is None:
            return Response("There is no such file.", 404, media_type="text/plain")
        return Response(content, media_type=media_of(path), headers={"Cache-Control": "max-age=300"})

    @app.get("/figures/{name}.{kind}")
    async def figure(name: str, kind: str, request: Request) -> Response:
        return served.answer(lambda site: _file(site, name, kind, dict(request.query_params)), "figures")

    @app.get("/find")
    async def find(request: Request) -> Response:
        typed = request.query_params.get("q", "")
        # Relative, like all links: the pages may lie below any path.
        return served.answer(lambda site: RedirectResponse(site.found(typed), 303), "find")

    @app.get("/{path:path}")
    async def page(path: str, request: Request) -> Response:
        query = dict(request.query_params)
        return served.answer(lambda site: HTMLResponse(site.page(path.rstrip("/"), query)), path)

    return app


def _file(site: Site, name: str, kind: str, query: Mapping[str, str]) -> Response:
    if kind not in {"csv", "json"}:
        raise NothingHere("Figures are CSV or JSON", kind[:20], "Ask for one of them.")
    options = dict(query)
    found = site.figure(name, options, options.pop("after", ""))
    if kind == "json":
        return Response(found.as_json(), media_type="application/json")
    more = {"Content-Disposition": f'attachment; filename="{found.name}.csv"'}
    if found.cursor:
        more["X-Next"] = found.cursor
    return Response(found.as_csv(), media_type="text/csv; charset=utf-8", headers=more)


class _Served:
    """The site once there is an index, and what is answered where something is wrong."""

    def __init__(self, open_site: Callable[[], Site]) -> None:
        self._open = open_site
        self._site: Site | None = None

    def answer(self, work: Callable[[Site], Response], path: str) -> Response:
        try:
            if self._site is None:
                self._site = self._open()
            return work(self._site)
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

    def reasons(self) -> list[str]:
        """Why the pages are not to be relied on now; empty if they are. A finding is none: pages show it."""
        try:
            if self._site is None:
                self._site = self._open()
            at = self._site.freshness()
        except ExplorerError as error:
            return [f"{error.what}: {error.remedy}"]
        except DatabaseFailed as error:
            # Not shown: it may name the database's host and user.
            _log.warning("the index cannot be read: %s", error)
            return ["the index cannot be read now"]
        unaudited = [] if at["audited"] >= 0 else ["no audit has ended yet"]
        return unaudited + ([at["trouble"]] if at["trouble"] else [])

    def close(self) -> None:
        if self._site is not None:
            self._site.close()

    def _told(self, error: ExplorerError, status: int, path: str) -> Response:
        if self._site is None:
            return Response(f"{error}\n", status, media_type="text/plain")
        shown = path if path.count("/") < 2 else "error"
        body = self._site.render("error.html", shown, what=error.what, remedy=error.remedy)
        return HTMLResponse(body, status)
