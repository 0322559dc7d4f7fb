"""/livez, /readyz and /metrics of every endpoint, and what the `doctor` commands find."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.responses import JSONResponse, Response

from troth.transport.alone import ENDING, ENDING_HEADER, PROCESS_HEADER, process_number
from troth.transport.errors import visible

Reasons = Callable[[], list[str]]
NAMES = 8
"""Characters of the column of a check's name: a line is written before the next check is known."""


def health_routes(reasons: Reasons, registry: CollectorRegistry) -> APIRouter:
    """Routes that answer from `reasons` (why not ready; empty when ready) and a Prometheus registry.

    /livez is 200 as long as the event loop turns, and names the process in a header, and whether it is about to end
    (see ``alone``; `TlsServer` writes that into the application's state).
    /readyz is 200 or 503, with the reasons as JSON.
    """
    router = APIRouter()

    @router.get("/livez")
    async def livez(request: Request) -> JSONResponse:
        ending = {ENDING_HEADER: "1"} if getattr(request.app.state, ENDING, False) else {}
        named = {PROCESS_HEADER: process_number(), "cache-control": "no-store"}
        return JSONResponse({"live": True}, headers=named | ending)

    @router.get("/readyz")
    async def readyz() -> JSONResponse:
        found = reasons()
        return JSONResponse({"ready": not found, "reasons": found}, status_code=503 if found else 200)

    @router.get("/metrics")
    async def metrics() -> Response:
        # First, since some gauges are brought up to now by it. Beside the registry, which may outlive these routes.
        ready = _ready(not reasons())
        return Response(generate_latest(registry) + ready, media_type=CONTENT_TYPE_LATEST)

    return router


def _ready(ready: bool) -> bytes:
    """As a metric, so that an alert need not ask another path."""
    name = "troth_ready"
    return f"# HELP {name} 1 while /readyz answers 200.\n# TYPE {name} gauge\n{name} {float(ready)}\n".encode()


class HealthFinding(NamedTuple):
    """One line: which check, whether it passed, what was seen, how to fix it."""

    check: str
    ok: bool
    seen: str
    fix: str


def tell(findings: Iterable[HealthFinding], as_json: bool, write: Callable[[str], None]) -> bool:
    """Write each finding as soon as it is there, with the fix below what failed, or all of them as JSON at the end.

    Some checks take long, such as hashing a model. Whether all of them passed.
    """
    told: list[HealthFinding] = []
    for finding in findings:
        told.append(finding)
        if not as_json:
            write(_line(finding))
    if as_json:
        write(json.dumps([finding._asdict() for finding in told]))
    return all(finding.ok for finding in told)


def _line(finding: HealthFinding) -> str:
    """Parties that were asked may have said part of it: their words steer no terminal, and begin no line."""
    seen = visible(finding.seen)
    if finding.ok:
        return f"ok   {finding.check:<{NAMES}} {seen}"
    return f"FAIL {finding.check:<{NAMES}} {seen}\n     fix: {visible(finding.fix)}"
