"""The pools as anybody may read them over HTTP, and as the operator asks for them on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from itertools import islice, permutations
from pathlib import Path
from typing import Annotated, Any, Protocol

import httpx
from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from troth.protocol.types import Address
from troth.scheduler.pool.chain_side import ChainSide
from troth.scheduler.pool.class_pool import ClassPool
from troth.scheduler.pool.coordinator import Coordinator
from troth.scheduler.pool.deciding import layer_loads, variation
from troth.scheduler.reading import read_hash
from troth.transport.errors import OverlayError
from troth.transport.https import naming_errors, pinned_client
from troth.transport.identity import load_identity

SHOWN_WAYS = 64
"""Nodes whose ways to each other are shown: of 2,048 there would be four million."""
MOST_MEMORY = 1 << 50
DRAWN_SECONDS = 0.5
"""Between two drawings of the map: strangers may ask as often as they like, and a large one takes a while."""
SECONDS = 3.0
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens; asked at the loopback


def shown(pool: ClassPool, side: ChainSide, now: float) -> dict[str, Any]:
    """Everything of it is public: slices and groups are on chain, times are measurements of public endpoints."""
    members = pool.members(side)
    live = pool.live.hosts(now)
    slices = [member.hosted for member in members if member.end <= side.layers]
    planned = {held.name: [held.first, held.end] for held in pool.decision.slices}
    spread = variation(layer_loads(slices, {member.name: member.layer_seconds for member in members}, side.layers))
    return {
        "layers": side.layers,
        "parties": side.parties,
        "ends": list(pool.offered),
        "planned_ends": list(pool.target),
        "moving_because": pool.decision.reason,
        "lacking": pool.decision.lacking,
        "load_variation": round(spread, 3) if spread < float("inf") else None,
        "nodes": [
            {
                "operator": member.name,
                "device": _device(pool, member.name),
                "slice": [member.first, member.end],
                "serving": [live[member.name].first, live[member.name].end] if member.name in live else None,
                "planned": planned.get(member.name),
                "groups": sorted([segment.first, segment.end] for segment in side.joined(Address(member.name))),
                "layer_milliseconds": round(member.layer_seconds * 1e3, 4),
                "round_trip_milliseconds": round(pool.measurements.round_trip(member.name, now) * 1e3, 3),
                "cache_tokens": live[member.name].cache_tokens if member.name in live else 0,
                "running": pool.router.running_on(member.name),
                "movable": member.movable,
            }
            for member in sorted(members, key=lambda one: (one.first, one.end, one.name))
        ],
        "links": _ways(pool, [member.name for member in members], now),
    }


def _ways(pool: ClassPool, names: Collection[str], now: float) -> list[dict[str, Any]]:
    known = pool.live.links(now)
    pairs = permutations(islice(sorted(names), SHOWN_WAYS), 2)
    return [
        {"from": pair[0], "to": pair[1], "milliseconds": round(known[pair] * 1e3, 3)} for pair in pairs if pair in known
    ]


def _device(pool: ClassPool, name: str) -> str | None:
    report = pool.report_of(name)
    return None if report is None else report.device


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


class ListeningPlace(Protocol):
    """Where a scheduler of this machine listens, as its configuration says."""

    @property
    def folder(self) -> Path:
        """The home folder."""

    @property
    def host(self) -> str:
        """The address."""

    @property
    def port(self) -> int:
        """The port."""


async def placement_of(configuration: ListeningPlace) -> dict[str, Any] | None:
    """What GET /v1/placement says; None if the scheduler does not run here."""
    found = await asked_here(configuration, ["/v1/placement"])
    return found[0] if found else None


def brief(placement: dict[str, Any]) -> dict[str, Any]:
    """The same for people: a line for each node, and the ways between them as a number (--json has them all)."""
    return {name: _brief(one) for name, one in placement.items()}


def _brief(one: dict[str, Any]) -> dict[str, Any]:
    nodes = [
        f"{node['operator']}: layers {_span(node['serving'])} of {_span(node['slice'])}, {node['device']}, "
        f"{node['layer_milliseconds']} ms a layer, {node['round_trip_milliseconds']} ms away, {node['running']} running"
        for node in one["nodes"]
    ]
    ways = f"{len(one['links'])} measured; --json lists them"
    return {**one, "ends": str(one["ends"]), "planned_ends": str(one["planned_ends"]), "nodes": nodes, "links": ways}


def _span(layers: list[int] | None) -> str:
    return "none" if layers is None else ":".join(map(str, layers))


async def asked_here(configuration: ListeningPlace, paths: Sequence[str]) -> list[dict[str, Any]]:
    """What the running scheduler answers to each path, over one connection; nothing if it does not run here."""
    host = EVERYWHERE.get(configuration.host, configuration.host)
    endpoint = f"https://{f'[{host}]' if ':' in host else host}:{configuration.port}"
    try:
        identity = load_identity(configuration.folder / "tls")
        with naming_errors(endpoint):
            async with pinned_client(endpoint, identity.spki_sha256, SECONDS) as client:
                return [(await client.get(path)).raise_for_status().json() for path in paths]
    except (OverlayError, httpx.HTTPError, ValueError):
        return []
