"""/livez, /readyz and /metrics of every endpoint, and what the `doctor` commands find."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.responses import JSONResponse, Response

Reasons = Callable[[], list[str]]


def health_routes(reasons: Reasons, registry: CollectorRegistry) -> APIRouter:
    """Routes that answer from `reasons` (why not ready; empty when ready) and a Prometheus registry.

    /livez is 200 as long as the event loop turns. /readyz is 200 or 503, with the reasons as JSON.
    """
    router = APIRouter()

    @router.get("/livez")
    async def livez() -> JSONResponse:
        return JSONResponse({"live": True})

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


def rendered(findings: Sequence[HealthFinding], as_json: bool) -> str:
    """All of them as JSON, or a line each, with the fix below what failed."""
    if as_json:
        return json.dumps([finding._asdict() for finding in findings])
    width = max((len(finding.check) for finding in findings), default=0)
    return "\n".join(_line(finding, width) for finding in findings)


def _line(finding: HealthFinding, width: int) -> str:
    if finding.ok:
        return f"ok   {finding.check:<{width}} {finding.seen}"
    return f"FAIL {finding.check:<{width}} {finding.seen}\n     fix: {finding.fix}"
