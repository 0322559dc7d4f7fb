"""How many bytes of cells a relay process moves for one second of one core: TLS in, layer, TLS out.

Counted in the relay's own CPU time, so that the client that makes the load takes nothing away from it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.figures import Figure
from benchmarks.overlay.network import RelayNetwork, relay_network
from troth.overlay.cells.messages import DESTINATION, Message, fragments
from troth.overlay.circuits.client import Client

MESSAGE = os.urandom(900_000)
MESSAGES = 200
AT_ONCE = 4
TOR = 180.0


def measure() -> list[Figure]:
    """MB of cells per second of CPU at each place of a path of three."""
    with tempfile.TemporaryDirectory(prefix="troth-bench-") as folder, relay_network(Path(folder)) as network:
        return uvloop.run(_figures(network))


async def _figures(network: RelayNetwork) -> list[Figure]:
    client = Client()
    circuits = [await client.build(network.path) for _ in range(AT_ONCE)]
    name = network.destination.name
    await asyncio.gather(*(circuit.request(name, MESSAGE) for circuit in circuits))
    before, begun = [relay.cpu_seconds for relay in network.relays], time.perf_counter()
    for _ in range(MESSAGES // AT_ONCE):
        await asyncio.gather(*(circuit.request(name, MESSAGE) for circuit in circuits))
    wall = time.perf_counter() - begun
    used = [relay.cpu_seconds - start for relay, start in zip(network.relays, before, strict=True)]
    await client.close()
    moved = MESSAGES * sum(size for size, _ in fragments(Message(1, MESSAGE, bytes(DESTINATION)))) / 1e6
    note = f"large cells towards the proxy; {moved / wall:.0f} MB/s wall for 5 processes on {os.cpu_count()} cores"
    return [
        Figure(f"relay throughput per core, {place}", moved / seconds, "MB/s", paper=TOR, reach=TOR, note=note)
        for place, seconds in zip(("guard", "middle", "proxy"), used, strict=True)
    ]
