"""/livez, /readyz and /metrics, the same for every endpoint of Troth."""

from __future__ import annotations

from collections.abc import Callable

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
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router
