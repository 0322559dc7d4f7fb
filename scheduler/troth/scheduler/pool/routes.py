"""The placement as anybody may read it, and where a newcomer would be of use."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from troth.scheduler.pool.coordinator import Coordinator
from troth.scheduler.pool.showing import shown
from troth.scheduler.reading import read_hash

MOST_MEMORY = 1 << 50
DRAWN_SECONDS = 0.5
"""Between two drawings of the map: strangers may ask as often as they like, and a large one takes a while."""


class Board:
    """The map of every class as it was drawn last."""

    def __init__(self, pools: Coordinator, clock: Callable[[], float] = time.monotonic) -> None:
        self._pools = pools
        self._clock = clock
        self._drawn = (float("-inf"), b"")

    def body(self) -> bytes:
        """JSON, at most DRAWN_SECONDS old."""
        now = self._clock()
        if now - self._drawn[0] >= DRAWN_SECONDS:
            pools = self._pools.pools().items()
            maps = {"0x" + class_id.hex(): shown(pool, side, now) for class_id, (pool, side) in pools}
            self._drawn = (now, json.dumps(maps).encode())
        return self._drawn[1]


def placement_routes(pools: Coordinator) -> APIRouter:
    """GET /v1/placement: every class's live map. GET /v1/placement/{class}/window: a slice for so much memory.

    A newcomer has no stake, so nothing of its question is kept: it cannot take a place from anybody, nor fill a table.
    """
    router, board = APIRouter(), Board(pools)

    @router.get("/v1/placement")
    async def placement() -> Response:
        return Response(board.body(), media_type="application/json")

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
