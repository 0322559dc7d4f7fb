"""The live map and the placement in words that JSON and a terminal can show."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice, permutations
from typing import Any

from troth.protocol.types import Address
from troth.scheduler.pool.balance import layer_loads, variation
from troth.scheduler.pool.chain_side import ChainSide
from troth.scheduler.pool.class_pool import ClassPool

SHOWN_WAYS = 64
"""Nodes whose ways to each other are shown: of 2,048 there would be four million."""


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
