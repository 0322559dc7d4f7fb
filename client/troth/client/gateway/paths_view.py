"""The circuits that a gateway's requests go over, for its user to see."""

from __future__ import annotations

from typing import Any

from troth.overlay.circuits.circuit import Circuit
from troth.overlay.paths.pool import CircuitPool

HOPS = ("guard", "middle", "proxy")


def paths_json(pool: CircuitPool | None, mode: str) -> dict[str, Any]:
    """Every live circuit from guard to proxy; without the overlay it says that the scheduler sees this machine.

    `mode` says where requests enter: at the "scheduler", or at a node ("direct").
    """
    if pool is None:
        return {"overlay": False, "mode": mode, "circuits": [], "shortage": ""}
    circuits = [{"in_use": held, "relays": _relays(circuit)} for circuit, held in pool.circuits()]
    return {"overlay": True, "mode": mode, "circuits": circuits, "shortage": pool.status.shortage}


def _relays(circuit: Circuit) -> list[dict[str, str]]:
    last = len(circuit.path) - 1
    return [
        {
            "hop": HOPS[0] if position == 0 else HOPS[2] if position == last else HOPS[1],
            "address": f"{relay.place.host}:{relay.place.port}",
            "operator": relay.operator,
        }
        for position, relay in enumerate(circuit.path)
    ]
