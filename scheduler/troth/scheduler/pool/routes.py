"""The placement as anybody may read it, and where a newcomer would be of use."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse

from troth.scheduler.pool.coordinator import Coordinator
from troth.scheduler.pool.showing import shown
from troth.scheduler.submission import read_hash

MOST_MEMORY = 1 << 50


def placement_routes(pools: Coordinator) -> APIRouter:
    """GET /v1/placement: every class's live map. GET /v1/placement/{class}/window: a slice for so much memory.

    A newcomer has no stake, so nothing of its question is kept: it cannot take a place from anybody, nor fill a table.
    """
    router = APIRouter()

    @router.get("/v1/placement")
    async def placement() -> JSONResponse:
        now = time.monotonic()
        return JSONResponse(
            {"0x" + class_id.hex(): shown(pool, side, now) for class_id, (pool, side) in pools.pools().items()}
        )

    @router.get("/v1/placement/{class_id}/window")
    async def window(class_id: str, memory_bytes: Annotated[int, Query(ge=0, le=MOST_MEMORY)]) -> JSONResponse:
        found = pools.window_for(read_hash(class_id, "class id"), memory_bytes)
        if found is None:
            return JSONResponse({"slice": None, "segments": []})
        return JSONResponse(
            {
                "slice": [found.first, found.end],
                "segments": [[segment.first, segment.end] for segment in found.segments],
            }
        )

    return router
