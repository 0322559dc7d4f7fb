"""Circuits over three real relay processes on loopback: set-up, and requests with an answer of 2 kB."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.figures import Figure
from benchmarks.overlay.floor import echo_process, round_trips
from benchmarks.overlay.network import ANSWER_BYTES, RelayNetwork, relay_network
from troth.overlay.circuits.client import Client

ROUNDS = 300
SET_UPS = 60
COLD_SET_UPS = 5
TOR_SET_UP, TOR_SMALL, TOR_LARGE = 11.9, 0.25, 0.88
"""Milliseconds of a tuned private Tor network (TCP_NODELAY, Vanilla scheduler) on the same kind of machine."""


def measure() -> list[Figure]:
    """Medians, with the best beside them: other work on the machine only adds."""
    with tempfile.TemporaryDirectory(prefix="troth-bench-") as folder, relay_network(Path(folder)) as network:
        figures = uvloop.run(_figures(network))
    with echo_process() as place:
        floor = uvloop.run(round_trips(place))
    return [*figures, _figure("of which: bare TLS, one link there and back", floor)]


async def _figures(network: RelayNetwork) -> list[Figure]:
    cold, warm = [await _first_set_up(network) for _ in range(COLD_SET_UPS)], await _set_ups(network)
    small, large = await _requests(network, 2000), await _requests(network, 30_000)
    one, three = await _pings(network, 1), await _pings(network, 3)
    return [
        _figure("circuit set-up, 3 hops, links open", warm, TOR_SET_UP, 12.0),
        _figure("the same, with TLS to the guard", cold, TOR_SET_UP, 12.0),
        _figure(f"request of 2 kB, {ANSWER_BYTES // 1000} kB back, 3 hops", small, TOR_SMALL, 2 * TOR_SMALL),
        _figure(f"request of 30 kB, {ANSWER_BYTES // 1000} kB back, 3 hops", large, TOR_LARGE, 2 * TOR_LARGE),
        _figure("of which: ping to the third hop", three),
        _figure("of which: ping to the first hop", one),
    ]


def _figure(name: str, samples: list[float], peer: float | None = None, reach: float | None = None) -> Figure:
    note = f"p50; best {min(samples):.2f}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    note += "; peer: Tor" if peer else ""
    return Figure(name, statistics.median(samples), "ms", paper=peer, reach=reach, note=note)


async def _first_set_up(network: RelayNetwork) -> float:
    client = Client()
    begun = time.perf_counter()
    await client.build(network.path)
    taken = time.perf_counter() - begun
    await client.close()
    return taken * 1e3


async def _set_ups(network: RelayNetwork) -> list[float]:
    client, samples = Client(), []
    await client.build(network.path)
    for _ in range(SET_UPS):
        begun = time.perf_counter()
        circuit = await client.build(network.path)
        samples.append((time.perf_counter() - begun) * 1e3)
        circuit.close()
    await client.close()
    return samples


async def _pings(network: RelayNetwork, hop: int) -> list[float]:
    client, samples = Client(), []
    circuit = await client.build(network.path)
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        await circuit.ping(hop)
        samples.append((time.perf_counter() - begun) * 1e3)
    await client.close()
    return samples[ROUNDS // 10 :]


async def _requests(network: RelayNetwork, length: int) -> list[float]:
    client, message, samples = Client(), os.urandom(length), []
    circuit = await client.build(network.path)
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        answer = await circuit.request(network.destination.name, message)
        samples.append((time.perf_counter() - begun) * 1e3)
        assert answer == message[:ANSWER_BYTES]
    await client.close()
    return samples[ROUNDS // 10 :]
